import java.time.Duration;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Map.Entry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumes a topic's only partition from its beginning, and writes each record's headers as HeaderLines does.
 *
 * <p>Arguments: the bootstrap servers, the topic, how many records, how many milliseconds it may take, and
 * names as ID=NAME.
 */
public final class ConsumeHeaders {
    public static void main(String[] arguments) {
        int left = Integer.parseInt(arguments[2]);
        long deadline = System.currentTimeMillis() + Long.parseLong(arguments[3]);
        Map<Long, String> names = new HashMap<>();
        for (int index = 4; index < arguments.length; index++) {
            String[] parts = arguments[index].split("=", 2);
            names.put(Long.parseLong(parts[0]), parts[1]);
        }
        HeaderIdReader reader = new HeaderIdReader(names);
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> partitions = List.of(new TopicPartition(arguments[1], 0));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (left > 0 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    List<Entry<String, byte[]>> headers = new ArrayList<>();
                    for (Header header : record.headers()) {
                        headers.add(new SimpleImmutableEntry<>(header.key(), header.value()));
                    }
                    HeaderLines.write(reader, headers);
                    left--;
                }
            }
        }
    }
}
