package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A key or value of a rack file that is nearly right is answered by one line with its place and the right
// one, at every level of the file.
func TestNearlyRightRackFiles(t *testing.T) {
	const (
		hosts = "hosts:\n  - {name: ms0, role: memory}\n  - {name: cn0, role: compute}\n"
		rules = "switch:\n  program: swordbox\n  rules:\n    - {server: ms0, "
	)
	for _, c := range []struct{ text, want string }{
		{"host:\n  - {name: cn0, role: compute}\n", `1:1: unknown key "host" in a rack file; did you mean hosts?`},
		{"hots:\n  - {name: cn0, role: compute}\n", `1:1: unknown key "hots" in a rack file; did you mean hosts?`},
		{"hosts:\n  - {nmae: cn0, role: compute}\n", `2:6: unknown key "nmae" in a host; did you mean name?`},
		{"hosts:\n  - {name: cn0, rol: compute}\n", `2:17: unknown key "rol" in a host; did you mean role?`},
		{"hosts:\n  - {name: cn0, role: comptue}\n", `2:23: role: "comptue" is unknown; did you mean compute?`},
		{"hosts:\n  - {name: cn0, role: compute, memry: 1GiB}\n", `2:32: unknown key "memry" in a host; did you mean memory?`},
		{"hosts:\n  - {name: cn0, role: compute, recovery: gobackn}\n", `2:42: recovery: "gobackn" is unknown; did you mean go-back-n?`},
		{"hosts:\n  - {name: cn0, role: compute, nics: [{naem: rxe1}]}\n", `2:40: unknown key "naem" in a NIC; did you mean name?`},
		{hosts + "fautls:\n  - {link: cn0, kind: loss, probability: 1%}\n", `4:1: unknown key "fautls" in a rack file; did you mean faults?`},
		{hosts + "faults:\n  - {lnik: cn0, kind: loss, probability: 1%}\n", `5:6: unknown key "lnik" in a fault; did you mean link?`},
		{hosts + "faults:\n  - {link: msO, kind: loss, probability: 1%}\n", `5:12: link "msO" is no host of this rack; did you mean ms0?`},
		{hosts + "faults:\n  - {link: cn0, kind: los, probability: 1%}\n", `5:23: kind: "los" is unknown; did you mean loss?`},
		{hosts + "faults:\n  - {link: cn0, kind: loss, probabilty: 1%}\n", `5:29: unknown key "probabilty" in a fault; did you mean probability?`},
		{hosts + "faults:\n  - {link: cn0, kind: loss, dir: dwn, probability: 1%}\n", `5:34: dir: "dwn" is unknown; did you mean down?`},
		{hosts + "faults:\n  - {link: cn0, kind: loss, match: {opcode: [RC_WRITE_LAST]}}\n", `5:37: unknown key "opcode" in match; did you mean opcodes?`},
		{hosts + "faults:\n  - {link: cn0, kind: loss, match: {opcodes: [RC_WRITE_MIDLE]}}\n", `5:47: opcode: "RC_WRITE_MIDLE": not an opcode like RC_WRITE_LAST; did you mean RC_WRITE_MIDDLE?`},
		{hosts + "faults:\n  - {link: cn0, kind: loss, match: {clas: ack}}\n", `5:37: unknown key "clas" in match; did you mean class?`},
		{hosts + "faults:\n  - {link: cn0, kind: loss, match: {class: akc}}\n", `5:44: class: "akc" is unknown; did you mean ack?`},
		{"swich: {program: swordbox}\n" + hosts, `1:1: unknown key "swich" in a rack file; did you mean switch?`},
		{"switch: {programm: swordbox}\n" + hosts, `1:10: unknown key "programm" in switch; did you mean program?`},
		{"switch: {program: swordbx}\n" + hosts, `1:19: program: "swordbx" is unknown; did you mean swordbox?`},
		{rules + "acton: move}\n" + hosts, `4:21: unknown key "acton" in a rule; did you mean action?`},
		{rules + "action: mvoe}\n" + hosts, `4:29: action: action "mvoe" is unknown; did you mean move?`},
		{rules + "action: move, mode: publishd}\n" + hosts, `4:41: mode: mode "publishd" is unknown; did you mean published?`},
		{rules + "action: move, shard: 2}\n" + hosts, `4:35: unknown key "shard" in a rule; did you mean shards?`},
		{strings.Replace(rules, "ms0", "mso", 1) + "action: move}\n" + hosts, `4:16: server: server "mso" is no host of this rack; did you mean ms0?`},
		{"connect: tpc\n" + hosts, `1:10: connect: "tpc" is unknown; did you mean tcp?`},
		{"daemons: sharde\n" + hosts, `1:10: daemons: "sharde" is unknown; did you mean shared?`},
		{"priority: realtme\n" + hosts, `1:11: priority: "realtme" is unknown; did you mean realtime?`},
		{"path-mtu: 1024\n" + hosts, `1:1: unknown key "path-mtu" in a rack file; did you mean pathMtu?`},
		{"congestion: {algorithm: dcqn, rp_max_rate: 1Gbit}\n" + hosts, `1:25: algorithm: "dcqn" is unknown; did you mean dcqcn?`},
		{"congestion: {rp_max_rat: 5Mbit}\n" + hosts, `1:14: unknown key "rp_max_rat" in congestion; did you mean rp_max_rate?`},
		{"fabric: {leafs: 2, spines: 2}\n" + hosts, `1:10: unknown key "leafs" in fabric; did you mean leaves?`},
		{"switch: {ports: {rat: 1Gbit}}\n" + hosts, `1:18: unknown key "rat" in ports; did you mean rate?`},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {wieght: 1}}}\n" + hosts, `1:45: unknown key "wieght" in a queue; did you mean weight?`},
		{"onerma: {windw: 1MiB}\n" + hosts, `1:10: unknown key "windw" in onerma; did you mean window?`},
	} {
		file := filepath.Join(t.TempDir(), "rack.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := run(t, "up", "-f", file)
		if text := fmt.Sprint(err); !isUse(err) || !strings.Contains(text, "rack.yaml:"+c.want) || strings.Contains(text, "\n") {
			t.Errorf("%s\n%v\nwant %s", c.text, err, c.want)
		}
	}
}
