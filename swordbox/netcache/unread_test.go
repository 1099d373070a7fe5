package netcache

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// frameOf is a request of a client as a frame.
func frameOf(port, id uint16, text string) []byte {
	// The packet that it would answer, because appendAnswer turns the ends.
	p := packet{payload: datagram(id, ""), src: [16]byte{10, 0, 0, 1}, dst: [16]byte{10, 0, 0, 3}, srcPort: 11211, dstPort: port, ip: ethLen}
	return p.appendAnswer(nil, append(make([]byte, 12), 8, 0), []byte(text))
}

// A write that the switch cannot read does not pass it: a fragment, or with bytes behind the UDP packet.
func TestUnreadRequestsDoNotPass(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"fragment": func(f []byte) []byte { f[ethLen+6] |= 0x20; return f },
		"trailer": func(f []byte) []byte {
			f = append(f, 0, 0)
			f[ethLen+2], f[ethLen+3] = byte((len(f)-ethLen)>>8), byte(len(f)-ethLen)
			return f
		},
		"short first fragment": func(f []byte) []byte {
			f = f[:ethLen+ip4Len+2]
			f[ethLen+6] |= 0x20
			f[ethLen+2], f[ethLen+3] = 0, ip4Len+2
			return f
		},
	} {
		b := newBed(t)
		b.fill()
		before := b.m.Stats().Unread
		passed := true
		b.step(func(c *pipeline.Ctx) {
			passed = !b.m.Take(c, 3, packetio.Frame{Data: change(frameOf(40002, 0, "set foo 0 0 5\r\nworld\r\n"))})
		})
		if passed || b.m.Stats().Unread != before+1 {
			t.Errorf("%s: passed %v, unread %d", name, passed, b.m.Stats().Unread-before)
		}
	}
}

// Lines whose data the server takes for commands, or that it cuts, may be about any key.
func TestLinesThatTheServerReadsOtherwise(t *testing.T) {
	for _, x := range []string{
		"delete foo\x00bar\r\n", "set k x 0 12\r\ndelete foo\r\n\r\n", "set k 0 0 12 a b\r\ndelete foo\r\n\r\n", "cas k 0 0 12\r\ndelete foo\r\n\r\n",
		"set k 4294967296 0 12\r\ndelete foo\r\n\r\n", "set k 0 9999999999 12\r\ndelete foo\r\n\r\n", "set k 0 0 12 norep\r\ndelete foo\r\n\r\n",
	} {
		if r, ok := parseRequest(datagram(9, x)); !ok || r.kind != Many {
			t.Errorf("%q is %v", x, r.kind)
		}
	}
	for _, x := range []string{"set k 0 0 1\r\na\r\n", "set k 1 -1 1 noreply\r\na\r\n", "cas k 0 0 1 7\r\na\r\n", "cas k 0 0 1 7 noreply\r\na\r\n"} {
		if r, ok := parseRequest(datagram(9, x)); !ok || r.kind != Write || string(r.key) != "k" {
			t.Errorf("%q is %v of %q", x, r.kind, r.key)
		}
	}
}

// Probes of a cache whose rule was changed do not have the numbers of those before.
func TestNumbersGoOnWhenARuleChanges(t *testing.T) {
	b := newBed(t)
	b.send(true, 40000, 1, "get foo\r\n")
	port, id := b.left1()
	set, err := ruleOf("store=10.0.0.2 hot=1 items=16 size=128")
	if err != nil {
		t.Fatal(err)
	}
	b.m.SetRules(set)
	b.send(true, 40000, 2, "get foo\r\n")
	if again, number := b.left1(); again == port && number == id {
		t.Errorf("a probe leaves from %d with number %d once more", port, id)
	}
}

// A datagram with the server's address from another port than the server's does not leave, and makes no value unknown:
// neither one that looks like an answer to a probe, nor one that the switch cannot read.
func TestServersAddressFromAnotherPort(t *testing.T) {
	answer := packet{payload: datagram(0, ""), src: [16]byte{10, 0, 0, 3}, dst: [16]byte{10, 0, 0, 1}, srcPort: 40002, dstPort: 11211, ip: ethLen}
	whole := answer.appendAnswer(nil, append(make([]byte, 12), 8, 0), []byte(item))
	fragment := append([]byte(nil), whole...)
	fragment[ethLen+6] |= 0x20
	for name, f := range map[string][]byte{"answer": whole, "fragment": fragment} {
		b := newBed(t)
		b.fill()
		before := b.m.Stats()
		taken := false
		b.step(func(c *pipeline.Ctx) { taken = b.m.Take(c, 3, packetio.Frame{Data: f}) })
		after := b.m.Stats()
		if !taken || len(b.left) != 0 || after.Spoofed != before.Spoofed+1 || after.Forgotten != before.Forgotten {
			t.Errorf("%s: taken %v, %d have left, %+v", name, taken, len(b.left), after)
		}
	}
}
