import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Map.Entry;

/**
 * Reads records' headers from its input and writes what HeaderIdReader makes of them.
 *
 * <p>In and out: "header NAME VALUE" and "end" after each record; in only: "name ID NAME". Names are UTF-8 in
 * hex, as are values, "-" is null; a refused record is the line "refused REASON".
 */
public final class HeaderLines {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Map<Long, String> names = new HashMap<>();
        List<Entry<String, byte[]>> headers = new ArrayList<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "name" -> names.put(Long.parseLong(words[1]), text(words[2]));
                case "header" -> headers.add(new SimpleImmutableEntry<>(text(words[1]), bytes(words[2])));
                default -> {
                    write(new HeaderIdReader(names), headers);
                    headers.clear();
                }
            }
        }
    }

    static void write(HeaderIdReader reader, List<Entry<String, byte[]>> headers) {
        try {
            for (Entry<String, byte[]> header : reader.read(headers)) {
                String name = HEX.formatHex(header.getKey().getBytes(StandardCharsets.UTF_8));
                byte[] value = header.getValue();
                System.out.println("header " + name + " " + (value == null ? "-" : HEX.formatHex(value)));
            }
            System.out.println("end");
        } catch (IllegalArgumentException refused) {
            System.out.println("refused " + refused.getMessage());
        }
    }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }
}
