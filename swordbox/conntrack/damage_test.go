package conntrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A wrong bit in the PSN of an answer does not make the table believe that all requests are answered:
// a switch that then begins to move requests would send the next one before those in flight.
func TestDamagedAnswerCoversNothing(t *testing.T) {
	for _, op := range []wire.Opcode{wire.RCAck, wire.RCReadResponseOnly, wire.RCAtomicAck} {
		r := newRig(t, nil)
		fl := r.learn(1, 2, 0x11, 0x22, 500)
		psn := fl.Expected
		write := func() Seen {
			psn = psn.Next()
			return r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, psn.Add(-1)))
		}
		answer := func(psn wire.PSN, bad bool) {
			r.bad = bad
			r.see(packet(2, 1, 0x11, op, psn))
			r.bad = false
		}
		write()
		answer(psn.Add(-1), true)
		if write().Alone {
			t.Errorf("%v: a damaged answer covers a request", op)
		}
		// A request is missing, those behind it are not answered.
		psn = psn.Next()
		write()
		answer(psn.Add(-1), true)
		psn = psn.Add(-2)
		write()
		write()
		if write().Alone {
			t.Errorf("%v: a damaged answer covers a request that has overtaken another", op)
		}
		if answer(psn.Add(-1), false); !write().Alone {
			t.Errorf("%v: an answer does not cover the requests", op)
		}
	}
}

// A wrong bit in the length of a READ, or one that makes a SEND a READ, does not move the expected
// PSN: the switch would take the requests that follow for duplicates.
func TestDamagedReadMovesNothing(t *testing.T) {
	r := newRig(t, nil)
	fl := r.learn(1, 2, 0x11, 0x22, 500)
	fl.setMTU(1024)
	psn := fl.Expected
	read := packet(1, 2, 0x22, wire.RCReadRequest, psn)
	read.RETH.Length = 8 | 1<<20
	r.bad = true
	r.ask(read)
	r.bad = false
	if fl.Expected != psn {
		t.Errorf("%d PSNs are taken", wire.Diff(fl.Expected, psn))
	}
	read.RETH.Length = 8
	if s := r.ask(read); s.Class != New || s.Span != 1 {
		t.Errorf("%+v", s)
	}
	// Before the first answer.
	r.ask(packet(3, 2, 0x33, wire.RCWriteOnly, 7))
	fl = r.flow(3, 2, 0x33)
	fl.setMTU(1024)
	read = packet(3, 2, 0x33, wire.RCReadRequest, 8)
	read.RETH.Length = 1 << 20
	r.bad = true
	r.ask(read)
	if fl.Expected != 8 {
		t.Errorf("PSN %d is expected", fl.Expected)
	}
}

// A wrong bit in the PSN of a request does not keep those that follow from being Alone: the switch would
// move none of them until they have come as far.
func TestDamagedRequestIsNotAhead(t *testing.T) {
	for bit := range 13 {
		r := newRig(t, nil)
		psn := r.learn(1, 2, 0x11, 0x22, 0).Expected
		r.bad = true
		r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, psn^1<<bit))
		r.bad = false
		for range 3 {
			if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, psn)); s.Class != New || !s.Alone {
				t.Errorf("bit %d, PSN %d: %+v", bit, psn, s)
			}
			r.see(packet(2, 1, 0x11, wire.RCAck, psn))
			psn = psn.Next()
		}
	}
}

// A damaged packet does not end the silence behind which the table knows that a queue pair belongs to a
// new connection: its requests would pass for duplicates of the old one.
func TestDamagedPacketEndsNoSilence(t *testing.T) {
	for _, op := range []wire.Opcode{wire.RCWriteOnly, wire.RCReadResponseMiddle} {
		for _, psn := range []wire.PSN{100, 1003} {
			r := newRig(t, nil)
			old := r.learn(1, 2, 0x11, 0x22, 1000).Generation
			r.now = r.now.Add(time.Minute)
			r.bad = true
			r.see(packet(1, 2, 0x22, op, psn))
			r.bad = false
			if fl := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 100)).Flow; fl.Generation == old {
				t.Errorf("behind a damaged %v with PSN %d, a new connection is taken for the old one", op, psn)
			}
		}
	}
}

// An answer to a request that was sent before the switch saw the flow may be the first that the table
// sees of it, whatever its PSN is.
func TestAnswerBeforeTheFirstRequest(t *testing.T) {
	for _, psn := range []wire.PSN{0x100, 0x7fffff, 0x800000, 0xfffff0} {
		r := newRig(t, func(c *Config) { c.Settle = 0 })
		fl := r.learn(1, 2, 0x11, 0x22, 100).Peer
		r.see(packet(1, 2, 0x22, wire.RCAck, psn))
		psn = psn.Next()
		r.ask(packet(2, 1, 0x11, wire.RCWriteOnly, psn))
		if r.see(packet(1, 2, 0x22, wire.RCAck, psn)); !fl.Synced() || fl.Expected != psn.Next() {
			t.Errorf("PSN %#x: PSN %#x is expected, known: %v", psn, fl.Expected, fl.Synced())
		}
	}
}
