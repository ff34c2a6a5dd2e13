// Records golden frames: what Kafka's own generated classes (kafka-clients) write for every version of a message.
//
//   java -cp ... Record golden.jsonl
//
// adds a line for each message and version that the file does not have yet:
//   {"message": "FetchRequest", "version": 12, "kind": "rich", "values": {...}, "frame": "<hex>", "kafka": "4.2.0"}
// values: as Kafka's JsonConverter writes them (records: their size alone; all of them are the bytes RECORDS, cut to that size).
// frame: size, header (correlation id, and client id for requests) and message. Of what stands inside other messages (EMBEDDED): its
// version and itself.
// kind: "default": a new object. "nulls": null wherever the version has it, arrays with one such element.
//       "rich": every field that the version has, at a value that is not its default; arrays of two.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileWriter;
import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.AppInfoParser;

public class Record {
    static final String[] APIS = {
        "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup",
        "SyncGroup", "DescribeGroups", "ListGroups", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ApiVersions", "CreateTopics", "DeleteTopics", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn",
        "EndTxn", "TxnOffsetCommit", "OffsetForLeaderEpoch", "CreatePartitions", "DeleteRecords", "DescribeTopicPartitions", "DescribeConfigs",
        "AlterConfigs", "IncrementalAlterConfigs", "DescribeClientQuotas", "AlterClientQuotas", "DescribeAcls", "CreateAcls", "DeleteAcls",
        "DescribeUserScramCredentials", "AlterUserScramCredentials", "ElectLeaders", "AlterPartitionReassignments",
        "ListPartitionReassignments", "DescribeLogDirs", "AlterReplicaLogDirs", "ListTransactions", "DescribeTransactions",
        "DescribeProducers", "WriteTxnMarkers", "DescribeCluster", "DescribeQuorum", "UpdateFeatures", "DeleteGroups", "OffsetDelete",
        "SaslHandshake", "SaslAuthenticate"};
    static final String[] EMBEDDED = {"ConsumerProtocolSubscription", "ConsumerProtocolAssignment"};
    static final String[] KINDS = {"default", "nulls", "rich"};
    static final String CLIENT_ID = "golden-é";
    static final byte[] RECORDS = new byte[300];

    static {
        for (int i = 0; i < RECORDS.length; i++) RECORDS[i] = (byte) (i * 7);
    }

    final ObjectMapper mapper = new ObjectMapper();
    int count = 0;  // makes each value another one

    public static void main(String[] args) throws Exception {
        Path file = Path.of(args[0]);
        Set<String> there = new HashSet<>();
        ObjectMapper mapper = new ObjectMapper();
        if (Files.exists(file))
            for (String line : Files.readAllLines(file)) there.add(key(mapper.readTree(line)));
        try (PrintWriter out = new PrintWriter(new FileWriter(file.toFile(), true))) {
            for (String api : APIS)
                for (String part : new String[] {"Request", "Response"})
                    new Record().all(api + part, api + part + "Data", there, out);
            for (String name : EMBEDDED) new Record().all(name, name, there, out);
        }
    }

    static String key(JsonNode line) {
        return line.get("message").asText() + " " + line.get("version").asInt();
    }

    void all(String name, String class_, Set<String> there, PrintWriter out) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.common.message." + class_);
        short low = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
        short high = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
        for (short version = low; version <= high; version++) {
            if (there.contains(name + " " + version)) continue;
            for (String kind : KINDS) {
                count = 0;
                Message message = (Message) type.getConstructor().newInstance();
                if (!kind.equals("default")) fill(message, message.getClass(), schema(type, version), kind.equals("rich"));
                ObjectNode line = mapper.createObjectNode();
                line.put("message", name).put("version", version).put("kind", kind);
                line.set("values", (JsonNode) Class.forName(type.getName() + "JsonConverter")
                    .getMethod("write", type, short.class, boolean.class).invoke(null, message, version, false));
                line.put("frame", hex(name.equals(class_) ? MessageUtil.toVersionPrefixedByteBuffer(version, message) : frame(name, message, version, 1000 + version)));
                line.put("kafka", AppInfoParser.getVersion());
                out.println(mapper.writeValueAsString(line));
            }
        }
    }

    static Schema schema(Class<?> type, short version) throws Exception {
        return ((Schema[]) type.getField("SCHEMAS").get(null))[version];
    }

    // -- values -------------------------------------------------------------------------------------------------------
    void fill(Object target, Class<?> type, Schema schema, boolean rich) throws Exception {
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields)
                for (Field tagged : tagged((TaggedFields) bound.def.type).values()) set(target, type, tagged, rich);
            else
                set(target, type, bound.def, rich);
        }
    }

    @SuppressWarnings("unchecked")
    static Map<Integer, Field> tagged(TaggedFields type) throws Exception {
        java.lang.reflect.Field fields = TaggedFields.class.getDeclaredField("fields");  // 3.9.1 has no getter
        fields.setAccessible(true);
        return (Map<Integer, Field>) fields.get(type);
    }

    void set(Object target, Class<?> type, Field field, boolean rich) throws Exception {
        Method setter = null;
        for (Method method : type.getMethods())
            if (method.getName().equalsIgnoreCase("set" + field.name.replace("_", ""))) setter = method;
        if (setter == null) throw new IllegalStateException(type + " has no setter for " + field.name);
        Class<?> kind = setter.getParameterTypes()[0];
        if (!rich && field.type.isNullable())
            setter.invoke(target, new Object[] {null});
        else if (rich || Collection.class.isAssignableFrom(kind)) {
            Object before = getter(type, setter).invoke(target);
            setter.invoke(target, value(kind, setter.getGenericParameterTypes()[0], field.type, before, rich));
        }
    }

    static Method getter(Class<?> type, Method setter) throws Exception {
        String name = setter.getName().substring(3);
        return type.getMethod(Character.toLowerCase(name.charAt(0)) + name.substring(1));
    }

    Object value(Class<?> kind, Type generic, Object wire, Object before, boolean rich) throws Exception {
        count++;
        if (kind == boolean.class || kind == Boolean.class) return !(Boolean) before;
        if (kind == byte.class || kind == Byte.class) return (byte) (count % 2 == 0 ? -2 - count % 100 : 2 + count % 100);
        if (kind == short.class || kind == Short.class) return (short) (count % 2 == 0 ? -1000 - count : 1000 + count);
        if (kind == double.class || kind == Double.class) return count * 1.25e100;
        if (wire == org.apache.kafka.common.protocol.types.Type.UINT16) return 60000 + count;
        if (kind == int.class || kind == Integer.class) return count % 2 == 0 ? -1000000 - count : 1000000 + count;
        if (kind == long.class || kind == Long.class) return count % 2 == 0 ? -5000000000L - count : 5000000000L + count;
        if (kind == String.class) return (count % 2 == 0 ? "grüße-✓-" : "name-") + count + (count % 5 == 0 ? "x".repeat(150) : "");
        if (kind == byte[].class) return Arrays.copyOf(RECORDS, 20 + count);
        if (kind == ByteBuffer.class) return ByteBuffer.wrap(RECORDS, 0, 20 + count);
        if (kind == Uuid.class) return new Uuid(0x0123456789abcdefL + count, -count);
        if (kind.getName().endsWith("BaseRecords")) return MemoryRecords.readableRecords(ByteBuffer.wrap(RECORDS, 0, 100 + count));
        if (Collection.class.isAssignableFrom(kind)) return collection(kind, generic, wire, rich);
        Object inner = kind.getConstructor().newInstance();
        fill(inner, kind, (Schema) wire, rich);
        return inner;
    }

    Object collection(Class<?> kind, Type generic, Object wire, boolean rich) throws Exception {
        Type holder = kind == List.class ? generic : kind.getGenericSuperclass();
        Class<?> element = (Class<?>) ((ParameterizedType) holder).getActualTypeArguments()[0];
        Object of = ((org.apache.kafka.common.protocol.types.Type) wire).arrayElementType().orElseThrow();
        @SuppressWarnings("unchecked")
        Collection<Object> items = (Collection<Object>) (kind == List.class ? new java.util.ArrayList<>() : kind.getConstructor().newInstance());
        boolean struct = of instanceof Schema;
        for (int i = 0; i < (rich ? 2 : struct ? 1 : 0); i++) {
            Object item;
            if (struct) {
                item = element.getConstructor().newInstance();
                fill(item, element, (Schema) of, rich);
            } else
                item = value(element, element, of, null, rich);
            items.add(item);
        }
        return items;
    }

    // -- bytes --------------------------------------------------------------------------------------------------------
    static ByteBuffer frame(String name, Message message, short version, int correlationId) {
        boolean request = name.endsWith("Request");
        ApiMessageType api = null;
        for (ApiMessageType one : ApiMessageType.values())
            if (one.name.equals(name.replaceAll("(Request|Response)$", ""))) api = one;
        short headerVersion = request ? api.requestHeaderVersion(version) : api.responseHeaderVersion(version);
        Message header = request
            ? new RequestHeaderData().setRequestApiKey(api.apiKey()).setRequestApiVersion(version).setCorrelationId(correlationId).setClientId(CLIENT_ID)
            : new ResponseHeaderData().setCorrelationId(correlationId);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = header.size(cache, headerVersion) + message.size(cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(4 + size);
        buffer.putInt(size);
        header.write(new ByteBufferAccessor(buffer), cache, headerVersion);
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) throw new IllegalStateException(name + " v" + version + " is shorter than its size");
        buffer.flip();
        return buffer;
    }

    static String hex(ByteBuffer buffer) {
        StringBuilder text = new StringBuilder();
        while (buffer.hasRemaining()) text.append(String.format("%02x", buffer.get()));
        return text.toString();
    }
}
