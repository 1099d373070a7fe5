package lookuptable

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func hostsOfText(s string) (netip.Addr, error) {
	switch s {
	case "ms0":
		return netip.MustParseAddr("10.0.0.9"), nil
	case "far":
		return netip.MustParseAddr("10.0.0.200"), nil
	}
	return netip.Addr{}, errors.New("no such host")
}

func portsOfText(a netip.Addr) int {
	switch a.As4()[3] {
	case 9:
		return 0
	case 200:
		return -1
	}
	return 7
}

// What the words of an entry mean, by the text that the switch shows for it.
func TestWordsOfEntries(t *testing.T) {
	const flow = "from=10.0.0.1:5 to=10.0.0.2:80 proto=tcp"
	for text, want := range map[string]string{
		"":                             "",
		"egress=ms0":                   "egress=port0",
		"egress=port12":                "egress=port12",
		"egress=port65535":             "egress=port65535",
		"dscp=0":                       "dscp=0",
		"dscp=0x2e":                    "dscp=46",
		"dscp=63 drop":                 "dscp=63 drop",
		"drop dscp=1 egress=port3":     "dscp=1 egress=port3 drop",
		"src=ms0":                      "src=10.0.0.9",
		"src=ms0:65535":                "src=10.0.0.9:65535",
		"dst=10.0.0.7:0":               "dst=10.0.0.7",
		"dst=::ffff:10.0.0.7":          "dst=10.0.0.7",
		"dst=[::ffff:10.0.0.7]:9":      "dst=10.0.0.7:9",
		"egress=port100":               "egress=port100",
		"egress=10":                    "! no such host",
		"egress=port65536":             "! no such host",
		"egress=port":                  "! no such host",
		"egress=far":                   "! no host of the rack",
		"egress=elsewhere":             "! no such host",
		"dst=elsewhere":                "! no such host",
		"dst=fe80::1%eth0":             "! no address of a machine",
		"dst=224.0.0.1":                "! no address of a machine",
		"dst=0.0.0.0":                  "! no address of a machine",
		"dst=0.0.0.0:80":               "! no address of a machine",
		"dst=224.0.0.1:80":             "! no address of a machine",
		"dst=::ffff:0.0.0.0":           "! no address of a machine",
		"dst=[::ffff:0.0.0.0]:80":      "! no address of a machine",
		"dst=[fe80::1%eth0]:80":        "! no address of a machine",
		"dst=10.0.0.7:65536":           "! no port from 0 to 65535",
		"dst=fd00::7":                  "! mixes IPv4 and IPv6",
		"dscp=64":                      "! no number from 0 to 63",
		"drop=yes":                     "! drop has no value",
		"src=10.0.0.7 src=10.0.0.8":    "! twice",
		"src=10.0.0.7 dst=10.0.0.8":    "! rewrites one of them",
		"dst=10.0.0.7 speed=9":         "! unknown",
		"dst=10.0.0.7 proto=udp":       "! twice",
		"dst=ms0:80 dscp=5 egress=ms0": "dst=10.0.0.9:80 dscp=5 egress=port0",
	} {
		e, err := (&Layout{Flow: true}).ParseEntry(flow+" "+text, hostsOfText, portsOfText)
		if wrong, ok := strings.CutPrefix(want, "! "); ok {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: %v, %v, want %s", text, &e, err, wrong)
			}
			continue
		}
		if err != nil || e.String() != strings.TrimSpace(flow+" "+want) {
			t.Errorf("%s: %v, %v", text, &e, err)
		}
	}
}

// What a key may be: of a flow all of its parts, with ports for TCP and UDP alone; of a destination the
// address alone.
func TestKeysOfEntries(t *testing.T) {
	for _, tc := range []struct {
		flow       bool
		text, want string
	}{
		{true, "from=10.0.0.1 to=10.0.0.2 proto=udp", ""},
		{true, "from=10.0.0.1:1 to=10.0.0.2 proto=udp", ""},
		{true, "from=10.0.0.1 to=10.0.0.2:1 proto=tcp", ""},
		{true, "from=10.0.0.1 to=10.0.0.2 proto=icmp", ""},
		{true, "from=fd00::1 to=fd00::2 proto=icmpv6", ""},
		{true, "from=10.0.0.1 to=10.0.0.2 proto=255", ""},
		{true, "from=10.0.0.1 to=10.0.0.2 proto=47", ""},
		{true, "from=10.0.0.1 to=10.0.0.2 proto=256", "up to 255"},
		{true, "from=10.0.0.1 to=10.0.0.2 proto=0x6", "up to 255"},
		{true, "from=10.0.0.1:1 to=10.0.0.2 proto=icmp", "only tcp and udp have ports"},
		{true, "from=10.0.0.1 to=10.0.0.2:1 proto=47", "only tcp and udp have ports"},
		{true, "from=10.0.0.1 to=10.0.0.2", "matches flows"},
		{true, "to=10.0.0.2 proto=tcp", "matches flows"},
		{true, "from=10.0.0.1 proto=tcp", "no destination"},
		{true, "from=10.0.0.1 to=10.0.0.2:4791 proto=udp dst=10.0.0.3", "RoCEv2"},
		{true, "from=10.0.0.1 to=10.0.0.2:4791 proto=tcp dst=10.0.0.3", ""},
		{true, "from=10.0.0.1 to=10.0.0.2:4791 proto=udp dscp=3", ""},
		{true, "from=10.0.0.1 to=10.0.0.2:4790 proto=udp src=10.0.0.3", ""},
		{true, "from=10.0.0.1:4791 to=10.0.0.2 proto=udp src=10.0.0.3", ""},
		{false, "to=10.0.0.2 drop", ""},
		{false, "to=fd00::2 dst=fd00::3", ""},
		{false, "to=ms0", "="},
		{false, "to=10.0.0.2:1", "matches destinations"},
		{false, "to=10.0.0.2 from=10.0.0.1", "matches destinations"},
		{false, "to=10.0.0.2 proto=tcp", "matches destinations"},
		{false, "drop", "no destination"},
		{false, "to=10.0.0.2 dst=fd00::3", "mixes"},
	} {
		e, err := (&Layout{Flow: tc.flow}).ParseEntry(tc.text, hostsOfText, portsOfText)
		switch {
		case tc.want == "" && (err != nil || e.String() != tc.text):
			t.Errorf("%s: %v, %v", tc.text, &e, err)
		case tc.want == "=" && (err != nil || e.String() != "to=10.0.0.9"):
			t.Errorf("%s: %v, %v", tc.text, &e, err)
		case tc.want != "" && tc.want != "=" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, %v, want %s", tc.text, &e, err, tc.want)
		}
	}
}

// What a capture says about an action.
func TestTextOfActions(t *testing.T) {
	for want, a := range map[string]Action{
		"unchanged":                  {},
		"addresses rewritten":        {Ops: OpSource, DSCP: 3},
		"addresses rewritten dscp=3": {Ops: OpDestination | OpDSCP, DSCP: 3},
		"egress=port2 drop":          {Ops: OpDrop | OpEgress, Egress: 2},
	} {
		if got := a.String(); got != want {
			t.Errorf("%+v is %q, want %q", a, got, want)
		}
	}
}

// An entry with a protocol or a source alone, which another control plane may write, is shown as a flow.
func TestTextOfForeignEntries(t *testing.T) {
	for want, k := range map[string]Key{
		"from=0.0.0.0 to=10.0.0.2 proto=tcp": {Dst: [16]byte{10, 0, 0, 2}, Proto: protoTCP},
		"from=10.0.0.1 to=10.0.0.2":          {Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 0, 2}},
		"to=10.0.0.2":                        {Dst: [16]byte{10, 0, 0, 2}},
	} {
		e := Entry{Key: k}
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
