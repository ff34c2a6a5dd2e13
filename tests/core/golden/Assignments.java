// Records what Kafka's own assignors make of groups that are made up at random.
//
//   java -cp ... Assignments > assignments.jsonl
//
// a line for each assignment:
//   {"assignor": "sticky", "topics": {"t0": [["r0", "r1"], []]}, "members": [["id", "instance" or null, "<hex>"]], "assigned": [["t0:0", ...], ...]}
// topics: for each partition the racks of its replicas. members: in the order in which the coordinator tells them to the leader, with
// the metadata of their JoinGroup as Kafka's ConsumerProtocol wrote them. assigned: the partitions of each member, in that order, sorted.
//
// Groups live for some rounds: members come, go, miss a round, change their minds; topics come, go and grow. Some members' data are of old
// clients, or claim what others have, or cannot be read.

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import java.util.UUID;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assignments {
    static final Map<String, Supplier<ConsumerPartitionAssignor>> ASSIGNORS = new TreeMap<>(Map.of(
        "range", RangeAssignor::new, "roundrobin", RoundRobinAssignor::new,
        "sticky", StickyAssignor::new, "cooperative-sticky", CooperativeStickyAssignor::new));

    static final List<Node> BROKERS = List.of(new Node(0, "h", 1), new Node(1, "h", 1), new Node(2, "h", 1));

    final Random random;
    final String name;
    final Map<String, String[][]> topics = new TreeMap<>();  // topic -> partition -> racks
    final List<Member> members = new ArrayList<>();
    final boolean alike;
    final int racks;
    int generation = 0;

    class Member {
        String id = (random.nextBoolean() ? "consumer-" + random.nextInt(9) + "-" : "é€-") + new UUID(random.nextLong(), random.nextLong());
        String instance = random.nextInt(5) == 0 ? "instance-" + random.nextInt(100) : null;
        String rack = racks > 0 && random.nextInt(6) > 0 ? "r" + random.nextInt(racks) : null;
        short version = (short) (random.nextInt(4) > 0 ? 3 : random.nextInt(4));
        ConsumerPartitionAssignor assignor = ASSIGNORS.get(name).get();
        List<String> subscribed = choose();
        List<TopicPartition> owned = new ArrayList<>();
        int generation = -1;

        List<String> choose() {
            List<String> all = new ArrayList<>(topics.keySet());
            if (random.nextInt(8) == 0) all.add("missing");
            if (alike) return new ArrayList<>(topics.keySet());
            Collections.shuffle(all, random);
            return new ArrayList<>(all.subList(0, 1 + random.nextInt(all.size())));
        }

        ByteBuffer metadata() {
            ByteBuffer data = assignor.subscriptionUserData(new HashSet<>(subscribed));
            int odd = random.nextInt(40);
            if (odd == 0) data = ByteBuffer.wrap(new byte[] {0, 0, 0});
            else if (odd == 1 && data != null && data.remaining() > 4) data.limit(data.limit() - 4);  // the sticky assignor's data before KIP-341
            boolean eager = name.equals("range") || name.equals("roundrobin") || name.equals("sticky");
            Subscription s = new Subscription(subscribed, data, eager ? List.of() : owned, generation, Optional.ofNullable(rack));
            return ConsumerProtocol.serializeSubscription(s, version);
        }
    }

    Assignments(String name, long seed, int most, int partitions) {
        this.name = name;
        random = new Random(seed);
        alike = random.nextInt(2) == 0;
        racks = random.nextInt(3) == 0 ? 2 + random.nextInt(2) : 0;
        int count = 1 + random.nextInt(6);
        for (int i = 0; i < count; i++) grow("t" + i, random.nextInt(4) == 0 && i > 0 ? topics.get("t0").length : 1 + random.nextInt(partitions));
        int first = 1 + random.nextInt(most);
        for (int i = 0; i < first; i++) members.add(new Member());
    }

    void grow(String topic, int count) {
        String[][] before = topics.getOrDefault(topic, new String[0][]);
        String[][] after = Arrays.copyOf(before, count);
        for (int p = before.length; p < count; p++) {
            List<String> there = new ArrayList<>();
            for (int r = 0; r < racks; r++) if (random.nextInt(2) == 0) there.add("r" + r);
            after[p] = there.toArray(new String[0]);
        }
        topics.put(topic, after);
    }

    void change(int most) {
        for (int i = random.nextInt(3); i > 0; i--) {
            switch (random.nextInt(7)) {
                case 0, 1 -> { if (members.size() < most) members.add(random.nextInt(members.size() + 1), new Member()); }
                case 2, 3 -> { if (members.size() > 1) members.remove(random.nextInt(members.size())); }
                case 4 -> { String topic = "t" + random.nextInt(7); grow(topic, topics.containsKey(topic) ? topics.get(topic).length + 1 : 2); if (alike) for (Member m : members) m.subscribed = m.choose(); }
                case 5 -> { if (topics.size() > 1) { topics.remove(new ArrayList<>(topics.keySet()).get(random.nextInt(topics.size()))); } }
                default -> { if (!alike) { Member m = members.get(random.nextInt(members.size())); m.subscribed = m.choose(); } }
            }
        }
    }

    String round() {
        generation++;
        List<PartitionInfo> infos = new ArrayList<>();
        topics.forEach((topic, parts) -> {
            for (int p = 0; p < parts.length; p++) {
                Node[] nodes = new Node[Math.max(1, parts[p].length)];
                for (int n = 0; n < nodes.length; n++) nodes[n] = new Node(n, "h", 1, parts[p].length == 0 ? null : parts[p][n]);
                infos.add(new PartitionInfo(topic, p, nodes[0], nodes, nodes));
            }
        });
        Cluster cluster = new Cluster("c", BROKERS, infos, java.util.Set.of(), java.util.Set.of());
        Map<String, Subscription> subscriptions = new HashMap<>();
        List<String> told = new ArrayList<>();
        for (Member m : members) {
            ByteBuffer data = m.metadata();
            byte[] bytes = new byte[data.remaining()];
            data.duplicate().get(bytes);
            Subscription s = ConsumerProtocol.deserializeSubscription(data);
            s.setGroupInstanceId(Optional.ofNullable(m.instance));
            subscriptions.put(m.id, s);
            told.add("[\"" + m.id + "\", " + (m.instance == null ? "null" : "\"" + m.instance + "\"") + ", \"" + HexFormat.of().formatHex(bytes) + "\"]");
        }
        Map<String, Assignment> made = ASSIGNORS.get(name).get().assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        List<String> assigned = new ArrayList<>();
        for (Member m : members) {
            List<TopicPartition> partitions = made.get(m.id).partitions();
            assigned.add(partitions.stream().map(tp -> "\"" + tp.topic() + ":" + tp.partition() + "\"").sorted().collect(Collectors.joining(", ", "[", "]")));
            if (random.nextInt(12) == 0) continue;  // it missed this round
            m.owned = new ArrayList<>(partitions);
            m.generation = generation;
            m.assignor.onAssignment(new Assignment(partitions, null), new ConsumerGroupMetadata("g", generation, m.id, Optional.empty()));
        }
        String where = topics.entrySet().stream().map(e -> "\"" + e.getKey() + "\": " + Arrays.stream(e.getValue())
            .map(r -> Arrays.stream(r).map(x -> "\"" + x + "\"").collect(Collectors.joining(", ", "[", "]")))
            .collect(Collectors.joining(", ", "[", "]"))).collect(Collectors.joining(", ", "{", "}"));
        return "{\"assignor\": \"" + name + "\", \"topics\": " + where + ", \"members\": " + told + ", \"assigned\": " + assigned + "}";
    }

    public static void main(String[] args) throws Exception {
        java.io.PrintStream out = new java.io.PrintStream(System.out, true, "UTF-8");
        int failed = 0;
        for (String name : ASSIGNORS.keySet()) {
            boolean sticky = name.contains("sticky");
            for (int seed = 0; seed < (sticky ? 90 : 45); seed++) {
                int most = seed % 15 == 14 ? 40 : 8;
                Assignments group = new Assignments(name, 20261122L + seed, most, seed % 15 == 14 ? 40 : 8);
                for (int round = 0; round < (sticky ? 6 : 2); round++) {
                    try {
                        out.println(group.round());
                    } catch (RuntimeException error) {  // Kafka's own bug: such a group is left where it is
                        System.err.println(name + " " + seed + "/" + round + ": " + error);
                        failed++;
                        break;
                    }
                    group.change(most);
                }
            }
        }
        System.err.println(failed + " groups were left");
    }
}
