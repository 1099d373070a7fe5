package conntrack

import (
	"testing"

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
