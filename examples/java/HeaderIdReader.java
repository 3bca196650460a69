import java.nio.ByteBuffer;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Map.Entry;

/**
 * Reads the header ids of Headerware (spec/header-ids.md): compact keys, the packed block, and plain names.
 *
 * <p>One file that needs only the JDK, for consumers, plug-ins of brokers, and Connect. It needs no
 * configuration: an id that is not in the table of names is shown in its dotted form, such as 0.0.0.5.
 */
public final class HeaderIdReader {
    private static final String BLOCK = "hw.ids";
    private static final String DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    private static final long MAX_ID = 0xFFFF_FFFFL;
    private static final int MAX_PACKED = 10_000;

    private final Map<Long, String> names;

    /** Takes the names of ids; the map may be empty. */
    public HeaderIdReader(Map<Long, String> names) {
        this.names = Map.copyOf(names);
    }

    /** Returns headers as they were sent; throws IllegalArgumentException for a block with a wrong layout. */
    public List<Entry<String, byte[]>> read(List<Entry<String, byte[]>> headers) {
        List<Entry<String, byte[]>> plain = new ArrayList<>();
        int start = -1;
        byte[] block = null;
        for (Entry<String, byte[]> header : headers) {
            if (!header.getKey().equals(BLOCK)) {
                plain.add(new SimpleImmutableEntry<>(plainName(header.getKey()), header.getValue()));
            } else {
                require(start < 0, "stands more than once");
                start = plain.size();
                block = header.getValue();
            }
        }
        return start < 0 ? plain : unpack(block, plain, start);
    }

    private List<Entry<String, byte[]>> unpack(byte[] block, List<Entry<String, byte[]>> plain, int start) {
        require(block != null && block.length > 0 && block[0] == '1', "is not of version 1");
        List<Entry<String, byte[]>> read = new ArrayList<>(plain.subList(0, start));
        ByteBuffer items = ByteBuffer.wrap(block, 1, block.length - 1);
        int used = start;
        boolean afterHeader = false;
        for (int packed = 0; items.hasRemaining() || !afterHeader; ) {
            long id = number(items);
            long length = number(items);
            if (id == 0) { // plain headers stand here
                require(afterHeader && length > 0 && length <= plain.size() - used, "miscounts");
                read.addAll(plain.subList(used, used + (int) length));
                used += (int) length;
            } else {
                require(++packed <= MAX_PACKED, "holds too many headers");
                require(length - 1 <= items.remaining(), "ends within a value");
                byte[] value = length == 0 ? null : new byte[(int) length - 1];
                if (value != null) items.get(value);
                read.add(new SimpleImmutableEntry<>(nameOf(id), value));
            }
            afterHeader = id != 0;
        }
        read.addAll(plain.subList(used, plain.size()));
        return read;
    }

    private static long number(ByteBuffer items) {
        long number = 0;
        int next = 30;
        for (int shift = 0; next >= 30; shift += 6) {
            require(items.hasRemaining(), "ends within an item");
            next = items.get() - '!';
            require(next >= 0 && next < 94, "has a byte that is in no number");
            number += (long) next << shift;
            require(shift < 42 && number <= MAX_ID, "has a number that is too large");
        }
        return number;
    }

    private String plainName(String name) {
        if (name.startsWith("~~")) return name.substring(1);
        if (!name.matches("~[B-Za-z0-9_-][A-Za-z0-9_-]{0,5}")) return name;
        long id = name.chars().skip(1).mapToLong(DIGITS::indexOf).reduce(0, (value, digit) -> value * 64 + digit);
        return id <= MAX_ID ? nameOf(id) : name;
    }

    private String nameOf(long id) {
        String dotted = (id >> 24) + "." + (id >> 16 & 255) + "." + (id >> 8 & 255) + "." + (id & 255);
        require(!BLOCK.equals(names.get(id)), "is named by an id");
        return names.getOrDefault(id, dotted);
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) throw new IllegalArgumentException(BLOCK + " " + otherwise);
    }
}
