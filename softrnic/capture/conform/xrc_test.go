package conform

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// sharedQueue is the SRQ that the requests of asXRC name.
const sharedQueue = 0x21

// asXRC makes a capture of reliable connections one of XRC: the same operations, with the number of a shared receive queue in
// the extended header of each request.
func (m *film) asXRC() {
	for _, x := range m.frames {
		h := &x.f.BTH
		if h.Opcode.Service() != wire.ServiceRC || h.Opcode > wire.RCSendOnlyInv {
			continue
		}
		h.Opcode |= wire.ServiceXRC
		if h.Opcode.Has(wire.HasXRCETH) {
			x.f.XRCETH.SRQN = sharedQueue
		}
	}
}

// The captures of a Linux kernel break no rule as XRC either, also those with losses, NAKs and duplicates.
func TestGoldenAsXRC(t *testing.T) {
	for _, name := range []string{
		"rc_send_64k", "rc_send_imm_multi", "rc_write_multi", "rc_write_imm_multi", "rc_read_multi", "rc_atomic_cas", "rc_atomic_faa", "rc_send_psnwrap",
		"loss_send", "loss_write", "loss_write_imm", "loss_faa", "rnr_send", "nak_write_rkey", "nak_atomic_rkey", "perf_read_bw", "perf_atomic_cas",
	} {
		m := open(t, name)
		m.asXRC()
		file, _ := m.file()
		for _, v := range check(t, file) {
			t.Errorf("%s: packet %d (%v): %s: %s", name, v.Packet.Number, v.Packet.Opcode(), v.Rule.Name, v.Why)
		}
	}
}

// xrc is op of XRC.
func xrc(op wire.Opcode) wire.Opcode { return op | wire.ServiceXRC }

// plantedXRC are captures of XRC in which one packet breaks a rule.
var plantedXRC = []struct {
	name, file string
	change     func(*film)
	rule       Rule
}{
	{"a message that names another shared receive queue at its end", "rc_send_64k", set(xrc(wire.RCSendLast), 2, func(f *wire.Frame) { f.XRCETH.SRQN++ }), SharedQueue},
	{"a WRITE that names another one in the middle", "rc_write_64k", set(xrc(wire.RCWriteMiddle), 5, func(f *wire.Frame) { f.XRCETH.SRQN = 1 }), SharedQueue},
	{"a request that is sent again to another shared receive queue", "rnr_send", again(xrc(wire.RCSendOnly), func(f *wire.Frame) { f.XRCETH.SRQN++ }), Copy},
	{"a reserved byte in the XRCETH", "rc_send_small", set(xrc(wire.RCSendOnly), 3, func(f *wire.Frame) { f.XRCETH.Reserved = 1 }), Reserved},
	{"an answer of another service", "rc_send_small", set(xrc(wire.RCAck), 3, become(wire.RCAck)), Service},
	{"a request of another service", "rc_send_small", set(xrc(wire.RCSendOnly), 3, become(wire.RCSendOnly)), Service},
	{"an ACK for a READ", "rc_read_only", set(xrc(wire.RCReadResponseOnly), 1, func(f *wire.Frame) { f.BTH.Opcode, f.Payload = xrc(wire.RCAck), nil }), Kind},
	{"READ responses in another order", "rc_read_multi", set(xrc(wire.RCReadResponseFirst), 1, func(f *wire.Frame) { f.BTH.Opcode = xrc(wire.RCReadResponseLast) }), ReadOrder},
	{"an answer to a PSN that was not sent", "rc_send_small", set(xrc(wire.RCAck), 2, move(3)), Unsent},
	{"a message without its first packet", "rc_send_64k", set(xrc(wire.RCSendFirst), 2, become(xrc(wire.RCSendMiddle))), Sequence},
	{"an MSN that counts too far", "rc_send_small", set(xrc(wire.RCAck), 4, counts(3)), MSN},
}

// Violations of XRC are named as well: the packet, and the rule.
func TestPlantedXRC(t *testing.T) {
	for _, c := range plantedXRC {
		t.Run(c.name, func(t *testing.T) {
			m := open(t, c.file)
			m.asXRC()
			c.change(m)
			file, number := m.file()
			if number == 0 {
				t.Fatal("nothing is planted")
			}
			found := check(t, file)
			if len(found) == 0 || found[0].Packet.Number != number || found[0].Rule != c.rule {
				t.Errorf("packet %d breaks %s; found:", number, c.rule.Name)
				for _, v := range found {
					t.Errorf("packet %d breaks %s: %s", v.Packet.Number, v.Rule.Name, v.Why)
				}
			}
		})
	}
}
