// Records the partitions that Kafka's own producer gives to keys.
//
//   java -cp ... Partitions > partitions.txt
//
// a line for each key: the key in hexadecimal ("-" for the empty one), then its partition among 3, 7, 64 and 2147483647.

import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Partitions {
    private static final int[] COUNTS = {3, 7, 64, Integer.MAX_VALUE};

    public static void main(String[] args) {
        Random random = new Random(20261121);
        for (int i = 0; i < 1500; i++) {
            byte[] key = i % 3 == 0 ? ("key " + i).getBytes() : new byte[i % 3 == 1 ? i / 3 % 24 : random.nextInt(24)];
            if (i % 3 != 0) {
                random.nextBytes(key);
            }
            StringBuilder line = new StringBuilder(key.length == 0 ? "-" : HexFormat.of().formatHex(key));
            for (int count : COUNTS) {
                line.append(' ').append(BuiltInPartitioner.partitionForKey(key, count));
            }
            System.out.println(line);
        }
    }
}
