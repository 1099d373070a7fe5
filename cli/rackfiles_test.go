package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mistake in a rack file is answered by its place and what to write instead, with status 2, and no rack
// comes up.
func TestFaultyRackFiles(t *testing.T) {
	const hosts = "hosts:\n  - {name: ms0, role: memory}\n  - {name: cn0, role: compute}\n"
	for _, c := range []struct{ text, want string }{
		{"switch:\n  program: swordbox\n  rules:\n    - {server: ms0, action: atomic}\n" + hosts, `4:29: action: action "atomic" is unknown; did you mean atomics? use one of [track move atomics steer count lookup buffer measure cache trace]`},
		{"hosts: &a\n  - {name: cn0, role: compute}\n", `1:8: hosts must be a list, but is an anchor or alias, which rack files do not have`},
		{"hosts:\n  - {name: ms[0-1], role: memory}\n", `2:14: ',' or '}' must be specified; a name with brackets between braces is in quotes: {name: "ms[0-1]", role: memory}`},
		{hosts + "faults:\n  - {link: cn0, kind: delay, delay: 10}\n", `5:37: delay: "10" is no duration; write it like 50us, 10ms or 1m30s`},
		{"", `1:1: the file is empty; it needs at least hosts`},
		{"hosts:\n  cn0: {role: compute}\n", `2:3: hosts must be a list, but is a mapping`},
		{"mtus: 4200\n" + hosts, `1:1: unknown key "mtus" in a rack file; did you mean mtu? known keys: `},
		{hosts + "faults:\n  - {link: cn0, kind: drop, probability: 10%}\n", `5:23: kind: "drop" is unknown; did you mean loss? use one of [loss duplicate delay reorder corrupt rate blackhole ecn pause tear]`},
		{"apiVersion: v1\nkind: Rack\n" + hosts, `1:1: unknown key "apiVersion" in a rack file`},
		{hosts + "faults:\n  - {link: cn9, kind: loss, probability: 10%}\n", `5:12: link "cn9" is no host of this rack`},
		{"- name: a\n", `1:3: a rack file must be a mapping, but is a list`},
		{"hosts:\n  - {name: ms0, role: memory, memory: 64MB}\n", `2:39: memory: "64MB" is no size: write 64MiB (units of 1024), or the number of bytes`},
		{"hosts:\n  - {name: ms0, role: memory, memory: lots}\n", `2:39: memory: "lots" is no size; write it like 64KiB, 8MiB or 1GiB`},
		{"mtu: 4096\n" + hosts, `1:6: mtu: 4096 is a path MTU, and mtu is the link's, with all headers; write pathMtu: 4096, or mtu: 4200`},
		{"mtu: 1024\n" + hosts, `1:6: mtu: 1024 is a path MTU, and mtu is the link's, with all headers; write pathMtu: 1024, or mtu: 1280`},
		{"mtu: 9k\n" + hosts, `1:6: mtu: "9k" is no whole number; write the bytes, like 9000`},
		{"name: My Rack\n" + hosts, `1:7: name: rack name "My Rack" must begin with a lower-case letter`},
		{"name: a\n", `1:1: a rack file lacks the key "hosts"`},
		{"hosts:\n  - {role: compute}\n", `2:5: a host lacks the key "name"`},
		{"hosts:\n  - {name: cn0}\n", `2:5: a host lacks the key "role"`},
		{hosts + "faults:\n  - {link: cn0, kind: loss, probability: 10}\n", `5:42: probability: "10" is no probability; write 10%, or a number from 0 to 1`},
		{"switch: {program: p4}\n" + hosts, `1:19: program: "p4" is unknown; use one of [forward swordbox]`},
		{hosts + "faults:\n  - {link: cn0, kind: rate, bitsPerSecond: 1000000000}\n", `5:44: bitsPerSecond: "1000000000" is no rate; write 1Gbit (bits a second)`},
		{hosts + "faults:\n  - {link: cn0, kind: rate, rate: 1Gbit}\n", `5:29: unknown key "rate" in a fault; did you mean bitsPerSecond? known keys: `},
		{"hosts:\n  - {name: cn0, role: client}\n", `2:23: role: "client" is unknown; did you mean compute? use one of [compute memory metadata]`},
		{"switch:\n  program: swordbox\n  rules:\n    - {server: ms9, action: atomics}\n" + hosts, `4:16: server: server "ms9" is no host of this rack`},
		{"seed: abc\n" + hosts, `1:7: seed: "abc" is no seed; use a whole number from 0 to 18446744073709551615`},
		{"subnet: 10.0.0.0\n" + hosts, `1:9: subnet: "10.0.0.0" is no network; write it like 10.77.0.0/24`},
		{"switch: swordbox\n" + hosts, `1:9: switch must be a mapping, but is a text; write switch: {program: swordbox}`},
		{"hosts:\n\t- {name: cn0, role: compute}\n", `2:1: found a tab character; indent with spaces`},
		{"topology:\n  nodes:\n    cn0: {kind: linux}\n", `1:1: unknown key "topology" in a rack file; did you mean hosts? known keys: `},
		{"hosts:\n  - {name: cn0, role: compute}\n  - {name: cn0, role: memory}\n", `3:12: host name "cn0" is taken already in line 2; names must differ`},
	} {
		file := filepath.Join(t.TempDir(), "rack.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{{"up", "-f", file}, {"apply", "-f", file, "--dry-run"}} {
			_, err := run(t, command...)
			if text := fmt.Sprint(err); !isUse(err) || !strings.Contains(text, "rack.yaml:"+c.want) {
				t.Errorf("%s of\n%s%v\nwant %s", command[0], c.text, err, c.want)
			}
		}
	}
}
