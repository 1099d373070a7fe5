package cli

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/chipcost"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

var (
	ms0  = netip.MustParseAddr("10.77.0.2")
	cn0  = netip.MustParseAddr("10.77.0.4")
	self = netip.MustParseAddr("10.77.0.1")
	box  = rackfile.Names{ms0: "ms0", cn0: "cn0", self: "switch"}
)

// width fails the test if a line is wider than 80 columns.
func width(t *testing.T, text string) {
	t.Helper()
	for l := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(l, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
}

// stalled is the report of a switch with a shared connection on which all requests wait for one,
// and a client whose flows were moved.
func stalled() swordbox.Report {
	shared := switchconn.Shared{Key: switchconn.Key{Server: ms0}, Generation: 2, OwnQPN: 0x61dc6d, ServerQPN: 0x6f13cf, SendPSN: 1, MTU: 4096}
	return swordbox.Report{
		Flows: []conntrack.Info{
			{ID: 0, Requester: cn0, Responder: ms0, ReqQPN: 0xc69eeb, RespQPN: 0x44d063, Peer: 1, How: "cm", State: conntrack.Open, MTU: 4096, Expected: 0x96360c, Synced: true, Idle: 57_560_123},
			{ID: 1, Requester: ms0, Responder: cn0, ReqQPN: 0x44d063, RespQPN: 0xc69eeb, Peer: 0, How: "cm", State: conntrack.Open, MTU: 4096, Idle: time.Hour},
			{ID: 2, Requester: cn0, Responder: ms0, RespQPN: 7, Peer: -1, State: conntrack.Learning, Idle: time.Microsecond},
		},
		Handlers: []handler.Info{{
			Shared: []handler.Shared{{
				Server: ms0, Owner: self, OwnQPN: 0x61dc6d, ServerQPN: 0x6f13cf, NextPSN: 0xc68d8d, Ring: 128, Outstanding: 3, Queued: 2, Retries: 1,
				Waits:   &handler.Wait{PSN: 0xc68d8a, Age: 1_234_567, Client: cn0, ClientQPN: 0xc69eeb, ClientPSN: 0x96360b, Op: "RC_CMP_SWAP→RC_WRITE_ONLY"},
				Waiters: slices.Repeat([]handler.Waiter{{Client: cn0, QPN: 0xc69eeb, Entries: 3}}, 8),
			}},
			Flows: []handler.Flow{{ID: 0, Client: cn0, Server: ms0, Moved: 2336, Shift: 2336, State: "shared"}},
		}},
		Dialed: []switchconn.Info{
			{Key: shared.Key, State: switchconn.Up, Shared: &shared},
			{Key: switchconn.Key{Server: ms0, Shard: 1}, State: switchconn.Waiting, Attempts: 3, Error: `the server refuses: invalid service (no service "memory" there)`},
		},
		Former: []journal.Flow{{Client: cn0, Server: ms0, ClientQPN: 0x43f41e, ServerQPN: 0x6f779f, Oldest: 0xe99f35}},
	}
}

const stalledText = `SHARED  STATE    GEN  OF      QP        SERVER QP  NEXT PSN  OPEN   QUEUE  TRIES
ms0/0   up       2    switch  0x61dc6d  0x6f13cf   0xc68d8d  3/128  2      1
ms0/1   waiting  -    switch  -         -          -         -      -      3
ms0/0 waits for PSN 0xc68d8a since 1.23ms:
  RC_CMP_SWAP→RC_WRITE_ONLY of cn0, queue pair 0xc69eeb, its PSN 0x96360b
  with it wait cn0 0xc69eeb (3), cn0 0xc69eeb (3), cn0 0xc69eeb (3), and 5 more
ms0/1: the server refuses: invalid service (no service "memory" there)

BROKEN BY RESTART  QP        TO   QP        OLDEST PSN
cn0                0x43f41e  ms0  0x6f779f  0xe99f35

FROM  QP        TO   QP        STATE     MTU   NEXT PSN  MOVED  SHIFT  IDLE
cn0   0xc69eeb  ms0  0x44d063  shared    4096  0x96360c  2336   2336   57.56ms
cn0   ?         ms0  0x7       learning  ?     ?         -      -      1µs
`

func TestPrintConnections(t *testing.T) {
	r := stalled()
	var out bytes.Buffer
	if err := printConnections(&out, box, &r, false); err != nil {
		t.Fatal(err)
	}
	if out.String() != stalledText {
		t.Errorf("got\n%s\nwant\n%s", out.String(), stalledText)
	}
	out.Reset()
	if err := printConnections(&out, box, &r, true); err != nil || strings.Count(out.String(), "0x44d063") != 2 {
		t.Errorf("with --all:\n%s", out.String())
	}
	out.Reset()
	if err := printConnections(&out, box, new(swordbox.Report), false); err != nil || out.String() != "no reliable connection has been seen\n" {
		t.Errorf("%s", out.String())
	}
}

// The help of every subcommand and the output of the listings fit into 80 columns, except for lines
// of data.
func TestSwitchCommandsAreNarrow(t *testing.T) {
	s, err := rackfile.Parse([]byte("name: budget\nhosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]\nswitch: {program: swordbox}\n"))
	if err != nil {
		t.Fatal(err)
	}
	out := capture(func(cmd *cobra.Command) error {
		program, err := apps.New(s, apps.Config{Rand: rand.New(rand.NewPCG(1, 1))})
		if err != nil {
			return err
		}
		b := chipcost.Of(program.Spec(), chipcost.Tofino())
		return printBudget(cmd.OutOrStdout(), &b)
	})
	width(t, out)
	for _, want := range []string{
		"Mode published\n", "Mode hardened\n", "blocks beyond stage 12: ", "tables that packets fill: ", "rings of each connection: ",
		"\n  kept packets: ", "\n    1024 held requests\n", "\n  timers: ", "\n  made packets: up to 128 ", "\n  ICRC\n", "+ read steering  ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not there:\n%s", want, out)
		}
	}
	width(t, stalledText)
}

// capture runs print and returns its output.
func capture(f func(cmd *cobra.Command) error) string {
	var out bytes.Buffer
	cmd := new(cobra.Command)
	cmd.SetOut(&out)
	if err := f(cmd); err != nil {
		return err.Error()
	}
	return out.String()
}

func TestCompleteRule(t *testing.T) {
	for word, want := range map[string]string{
		"action=": "action=track action=move action=atomics",
		"mode=h":  "mode=hardened mode=published",
		"a":       "id= action= mode= range= rkey= shards= service= depth= mtu=", // the shell selects those that fit the word
	} {
		got, _ := completeRule(new(cobra.Command), []string{"server=ms0"}, word)
		if !strings.HasPrefix(strings.Join(got, " "), want) {
			t.Errorf("%q: %v", word, got)
		}
	}
}

func TestAdoptFlags(t *testing.T) {
	f := adoptFlags{serverQPN: "0x11", ownQPN: "0x77", sendPSN: "5", recvPSN: "0", mtu: 1024, depth: 1, mac: "02:00:00:00:00:09"}
	a, err := f.adopted("ms0")
	if err != nil || a.ServerQPN != 0x11 || a.OwnQPN != 0x77 || a.SendPSN != 5 || *a.MAC != (wire.MAC{2, 0, 0, 0, 0, 9}) {
		t.Errorf("%+v, %v", a, err)
	}
	for flag, bad := range map[string]adoptFlags{
		"--server-qpn": {}, "--qpn": {serverQPN: "1"}, "--send-psn": {serverQPN: "1", ownQPN: "1", sendPSN: "x"},
		"--mac": {serverQPN: "1", ownQPN: "1", sendPSN: "1", recvPSN: "1", mac: "x"},
	} {
		if _, err := bad.adopted("ms0"); err == nil || !strings.HasPrefix(err.Error(), flag+":") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// Each packet of a stream that has a comment is printed as a line. Packets that the switch only
// received are not.
func TestTrace(t *testing.T) {
	var file bytes.Buffer
	w, err := pcapng.NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cn0 up", "ms0 down"} {
		if _, err := w.AddInterface(name, pcapng.Ethernet); err != nil {
			t.Fatal(err)
		}
	}
	f := wire.Frame{IPv4: wire.IPv4{TTL: 64, Src: cn0.As4(), Dst: ms0.As4()}}
	f.BTH = wire.BTH{Opcode: wire.RCCmpSwap, DestQP: 0x11, PSN: 0x1234}
	data := f.AppendTo(nil)
	for i, p := range []struct {
		id      int
		data    []byte
		comment string
	}{
		{0, data, "taken by swordbox"},
		{0, data, "FAA→WRITE conn 2 psn 1→2, to ms0"},
		{1, data, "FAA→WRITE conn 2 psn 1→2, from cn0"},
		{1, data, "CAS→WRITE conn 7 psn 12→4711 value 1, was 0"},
		{0, data, "dropped by the switch: spoofed source"},
		{0, []byte("no RoCEv2 at all"), "dropped by the switch: runt"},
	} {
		if err := w.WriteTruncated(p.id, int64(1e9+i*1500), p.data, len(p.data), p.comment); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	tr := tracer{out: &out, names: box, taken: "taken by swordbox"}
	if err := tr.run(bytes.NewReader(file.Bytes()), 0); err != nil {
		t.Fatal(err)
	}
	const want = "  0.000000 cn0 up    FAA→WRITE conn 2 psn 1→2, to ms0\n" +
		"  0.000003 ms0 down  CAS→WRITE conn 7 psn 12→4711 value 1, was 0\n" +
		"  0.000005 cn0 up    cn0→ms0 CMP_SWAP 0x1234: dropped by the switch: spoofed source\n" +
		"  0.000006 cn0 up    frame: dropped by the switch: runt\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	tr = tracer{out: &out, names: box, json: true, taken: "taken by swordbox"}
	if err := tr.run(bytes.NewReader(file.Bytes()), 3); err != nil {
		t.Fatal(err)
	}
	var e traceEvent
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &e); len(lines) != 3 || err != nil || e.Link != "ms0" || e.Dir != "down" || e.From != "cn0" || e.PSN != 0x1234 || e.Opcode != "RC_CMP_SWAP" {
		t.Errorf("%+v, %v", e, err)
	}
	if err := tr.run(bytes.NewReader(file.Bytes()[:len(file.Bytes())-5]), 0); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("a broken stream: %v", err)
	}
}
