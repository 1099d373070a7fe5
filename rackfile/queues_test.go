package rackfile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

const queued = `switch:
  ports: {rate: 1Gbit, buffer: 4MiB, reaction: 2ms}
  dscp: {3: 3, 48: 6}
  queues:
    3: {lossless: true, ecn: {kmin: 5000, kmax: 200000, pmax: 1%}, xoff: 40KiB, weight: 50}
    4: {limit: 64KiB, ecn: {kmin: 1, kmax: 2, pmax: 0, at: enqueue}}
    6: {strict: true}
  watchdog: {detect: 100ms, action: forward}
hosts:
  - {name: a, role: compute, rate: 100Mbit}
  - {name: b, role: memory}
`

func TestQueues(t *testing.T) {
	r, err := Parse([]byte(queued))
	if err != nil {
		t.Fatal(err)
	}
	if err := refuses(compiled(t), queued); err != nil {
		t.Error("the schema:", err)
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if r, err = Decode(data); err != nil {
		t.Fatal(err)
	}
	c := r.Switch.Queues
	three, four := c.Classes[3], c.Classes[4]
	headroom := portqueue.Headroom(1e9, 50*time.Microsecond, 4*time.Millisecond, 4218)
	switch {
	case c.Rate != 1e9 || c.Buffer != 4<<20 || c.Own != 512<<10 || c.DSCP[3] != 3 || c.DSCP[48] != 6 || c.DSCP[4] != 0:
		t.Errorf("%+v", c)
	case !three.Lossless || three.XOFF != 40<<10 || three.Headroom != headroom || three.Weight != 50 || three.XON != 2*4218 || three.Reserve != 4096 || three.ECN.PMax != 10_000:
		t.Errorf("priority 3: %+v", three)
	case four.Lossless || four.XOFF != 64<<10 || !four.ECN.AtEnqueue || !c.Classes[6].Strict:
		t.Errorf("priority 4: %+v", four)
	case c.Watchdog.Detect != 100*time.Millisecond || c.Watchdog.Restore != 200*time.Millisecond || !c.Watchdog.Forward:
		t.Errorf("%+v", c.Watchdog)
	case c.Validate() != nil:
		t.Error(c.Validate())
	}
	for i, want := range []int64{1e8, 1e9} {
		nic, ok := r.NICQueue(&r.Hosts[i])
		if !ok || nic.Rate != want || !nic.Classes[3].Lossless || nic.DSCP[3] != 3 || nic.Validate() != nil {
			t.Errorf("NIC of %s: %+v, %v", r.Hosts[i].Name, nic, nic.Validate())
		}
	}
	plain, err := Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := plain.NICQueue(&plain.Hosts[0]); ok || plain.Switch.Queues != nil {
		t.Error("a rack without queues has some")
	}
}

func TestQueueMistakes(t *testing.T) {
	const hosts = "hosts: [{name: a, role: compute}]\n"
	for _, c := range []struct{ file, want string }{
		{"switch: {ports: {}}\n", "ports lacks the key \"rate\""},
		{"switch: {ports: {rate: 1}}\n", "1:24: rate: "},
		{"switch: {ports: {rate: 1Gbit, buffer: 1KiB}}\n", "buffer: 1KiB is out of bounds"},
		{"switch: {ports: {rate: 1Gbit, reaction: 1s}}\n", "use a time from 0s to 100ms"},
		{"switch: {dscp: {3: 3}}\n", "dscp needs the key ports"},
		{"switch: {queues: {3: {}}}\n", "queues needs the key ports"},
		{"switch: {ports: {rate: 1Gbit}, dscp: {64: 1}}\n", `unknown key "64" in dscp`},
		{"switch: {ports: {rate: 1Gbit}, dscp: {3: 8}}\n", "8 is out of bounds"},
		{"switch: {ports: {rate: 1Gbit}, queues: {8: {}}}\n", `unknown key "8" in queues`},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {ecn: {kmin: 5}}}}\n", "ecn lacks the key"},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {ecn: {kmin: 5, kmax: 4, pmax: 1%}}}}\n", "kmin 5 is above kmax 4"},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {xoff: 40KiB}}}\n", "xoff needs lossless"},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {headroom: auto, xon: 1KiB}}}\n", "need lossless: true"},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {lossless: true, limit: 1KiB}}}\n", "limit is for lossy queues"},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {strict: true, weight: 3}}}\n", "strict and weight exclude each other"},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {alpha: 0}}}\n", "is no factor; write it like 1/8 or 2"},
		{"switch: {ports: {rate: 100Gbit, buffer: 1MiB}, queues: {3: {lossless: true}}}\n", "buffer: 1MiB is too small"},
		{"cable: memory\nswitch: {ports: {rate: 1Gbit}, queues: {3: {lossless: true}}}\n", "lossless needs cable: veth"},
		{"daemons: shared\nswitch: {ports: {rate: 1Gbit}, queues: {3: {lossless: true}}}\n", "lossless needs daemons: separate"},
		{"switch: {ports: {rate: 1Gbit}, watchdog: {detect: 0s}}\n", "use a time from 1ms to 1m0s"},
		{"switch: {ports: {rate: 1Gbit}}\nfaults: [{link: a, kind: rate, bitsPerSecond: 1Mbit}]\n", "change switch.ports.rate"},
		{"faults: [{link: a, kind: pause, priority: 3}]\n", "pause needs the key ports of the switch"},
		{"switch: {ports: {rate: 1Gbit}}\nfaults: [{link: a, kind: pause, priority: 3}]\n", "priority 3 is lossy"},
	} {
		if _, err := Parse([]byte(c.file + hosts)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.file, err, c.want)
		}
	}
}

// The parser and the schema know the same keys of the queues' sections.
func TestSchemaHasEveryKeyOfQueues(t *testing.T) {
	d := descriptions()
	for section, keys := range map[string][]key{"ports": portKeys(), "3": queueShapes(d), "watchdog": watchdogKeys()} {
		file := map[string]string{"ports": "{ports: {zzz: 1}}", "3": "{queues: {3: {zzz: 1}}}", "watchdog": "{watchdog: {zzz: 1}}"}[section]
		_, err := Parse([]byte("switch: " + file + "\nhosts: [{name: a, role: memory}]\n"))
		if err == nil {
			t.Fatalf("%s: zzz is a key", section)
		}
		_, list, _ := strings.Cut(err.Error(), "known keys: ")
		list, _, _ = strings.Cut(list, "\n")
		known := strings.Split(list, ", ")
		slices.Sort(known)
		var have []string
		for _, k := range keys {
			have = append(have, k.name)
		}
		slices.Sort(have)
		if !slices.Equal(known, have) {
			t.Errorf("%s: the parser knows %v, the schema %v", section, known, have)
		}
		undescribed(t, section, keys)
	}
}

// Some keys of a host do not go together, or not with those of the switch.
func TestHostsThatCannotBe(t *testing.T) {
	for _, c := range []struct{ file, host, want string }{
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {lossless: true}}}\n", "rate: 2Gbit", "host a sends 2Gbit, and the ports take 1Gbit: a pause stops a faster NIC too late"},
		{"switch: {ports: {rate: 1Gbit}, queues: {3: {lossless: true}}}\n", "rate: 1Gbit", ""},
		{"switch: {ports: {rate: 1Gbit}}\n", "rate: 2Gbit", ""},
		{"congestion: {rp_max_rate: 1Gbit}\n", "recovery: rack", "recovery: rack and congestion control do not go together"},
		{"congestion: {rp_max_rate: 1Gbit}\n", "recovery: go-back-n", ""},
		{"congestion: {rp_max_rate: 1Gbit, algorithm: none}\n", "recovery: irn", ""},
	} {
		_, err := Parse([]byte(c.file + "hosts: [{name: a, role: compute, " + c.host + "}]\n"))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s%s: %v, want %q", c.file, c.host, err, c.want)
		}
	}
}
