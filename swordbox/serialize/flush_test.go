package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// flush flushes a word of the server.
func (c *conn) flush(off int) verbs.SendWR {
	wr := c.faa(off, 0, 0)
	wr.Op, wr.SGL, wr.Flush = verbs.OpFlush, nil, verbs.Flush{Length: 8, Global: true}
	return wr
}

// seen are the requests that come to the server, and the answers that it gives, in their order.
type seen struct {
	op   wire.Opcode
	from int // host number of the connection's other end
}

func (r *rig) watch() *[]seen {
	list := new([]seen)
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		switch {
		case !up && port == r.server.port:
			*list = append(*list, seen{f.BTH.Opcode, hostOf(f.SrcAddr())})
		case up && port == r.server.port:
			*list = append(*list, seen{f.BTH.Opcode, hostOf(f.DstAddr())})
		}
		return true
	}
	return list
}

// A FLUSH travels unchanged on its client's connection. It leaves the switch only when the replaced
// atomic before it was executed, and the replaced atomic behind it only when the FLUSH was answered
// (hole 39). The switch goes on to know the word.
func TestFlushIsInOrder(t *testing.T) {
	for name, rc := range map[string]rigConfig{"replaced": {clients: 1}, "moved": {clients: 1, rules: moveRule(1)}} {
		r, conns := known(t, rc)
		c := conns[0]
		before := r.m.Stats()
		list := r.watch()
		c.post(c.faa(64, 0x100, 0), c.flush(64), c.faa(64, 0x100, 8))
		r.run(5 * time.Millisecond)
		c.done(verbs.Success, verbs.Success, verbs.Success)
		if got := *list; len(got) != 6 || got[0].from == 1 || got[1].from != got[0].from || got[2] != (seen{wire.RCFlush, 1}) ||
			got[3] != (seen{wire.RCReadResponseOnly, 1}) || got[4].from != got[0].from {
			t.Errorf("%s: the server saw %v; want an atomic on a shared connection, FLUSH and answer of the client, another atomic", name, got)
		}
		s := r.m.Stats()
		if name == "replaced" && s.Replaced != before.Replaced+2 {
			t.Errorf("%d were replaced, want 2", s.Replaced-before.Replaced)
		}
		if a, b := c.n.word(0), c.n.word(8); b != a+0x100 {
			t.Errorf("%s: the atomics answer %#x and %#x", name, a, b)
		}
	}
}

// A FLUSH and a WRITE that was moved: the WRITE was acknowledged on the shared connection before the
// FLUSH leaves the switch, also when the packet of the WRITE is lost behind the switch.
func TestFlushWaitsForMovedWrite(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := r.connect(0)
	c.post(c.write(64, 0, 8)) // proves the key
	r.run(time.Millisecond)
	c.done(verbs.Success)
	lost, flushed := 0, 0
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		switch {
		case up || port != r.server.port:
		case f.BTH.Opcode == wire.RCWriteOnly && lost == 0:
			lost++
			return false
		case f.BTH.Opcode == wire.RCFlush:
			flushed++
			if got := r.server.word(64); got != 0x77 {
				t.Errorf("the FLUSH comes to the server before the WRITE: the word is %#x", got)
			}
		}
		return true
	}
	c.n.buf[0] = 0x77
	c.post(c.write(64, 0, 8), c.flush(64))
	r.run(500 * time.Millisecond)
	c.done(verbs.Success, verbs.Success)
	if s := r.m.Stats(); lost != 1 || flushed != 1 || s.Moved == 0 {
		t.Errorf("%d WRITEs lost, %d FLUSHes, %d moved", lost, flushed, s.Moved)
	}
}

// The answer of a FLUSH is lost, and the request comes again: the switch answers it as the server
// did.
func TestFlushIsAnsweredAgain(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	lost, requests := 0, 0
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		if !up && port == r.server.port && f.BTH.Opcode == wire.RCFlush {
			requests++
		}
		if !up && port == c.n.port && f.BTH.Opcode == wire.RCReadResponseOnly && lost == 0 {
			lost++
			return false
		}
		return true
	}
	c.post(c.flush(64))
	r.run(200 * time.Millisecond)
	c.done(verbs.Success)
	if again := r.m.Stats().AnsweredAgain; requests != 1 || lost != 1 || again != 1 {
		t.Errorf("%d FLUSHes came to the server, %d answers were lost, %d given again", requests, lost, again)
	}
}

// A FLUSH under a key proves no right to anything else.
func TestFlushProvesNoKey(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := r.connect(0)
	for range 4 {
		c.post(c.flush(64))
		r.run(time.Millisecond)
		c.done(verbs.Success)
	}
	list := r.watch()
	c.post(c.write(64, 0, 8))
	r.run(time.Millisecond)
	c.done(verbs.Success)
	if got := *list; len(got) == 0 || got[0] != (seen{wire.RCWriteOnly, 1}) {
		t.Errorf("the server saw %v: the WRITE must prove its key on the client's connection", got)
	}
}
