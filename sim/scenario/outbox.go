package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// outbox sends messages and checks that each completes once, in order and with success.
type outbox struct {
	*ends
	draw             *draw
	ops, depth       int // the number of messages, and the most of them in flight
	posted, complete int
	signalled        int // number of the last message that requests a completion, plus 1
	wcs              [16]verbs.WC
}

// pause is the longest time between two bursts of messages of an outbox.
const pause = 60 * time.Microsecond

// send sends messages 0 to ops-1. The function `next` makes the work request of message k.
func (o *outbox) send(next func(k int) verbs.SendWR) error {
	for o.complete < o.ops {
		room := min(o.depth-(o.posted-o.complete), o.ops-o.posted)
		for i := 0; i < room; i++ {
			wr := next(o.posted)
			wr.ID = uint64(o.posted)
			if o.posted == o.ops-1 || i == room-1 || o.draw.IntN(3) == 0 {
				wr.Flags |= verbs.Signalled
				o.signalled = o.posted + 1
			}
			o.inline(&wr)
			if err := o.qp.PostSend(wr); err != nil {
				return fmt.Errorf("post of message %d: %w", o.posted, err)
			}
			o.posted++
		}
		if err := o.reap(); err != nil {
			return err
		}
		o.rt.Sleep(o.draw.span(0, pause))
	}
	return nil
}

// inline makes some short messages inline. It then overwrites their buffer, which a NIC must not
// read any more after the post.
func (o *outbox) inline(wr *verbs.SendWR) {
	s := wr.SGL[0]
	if s.Length > maxInline || o.draw.IntN(2) == 0 {
		return
	}
	b := o.buf[s.Addr-o.mr.Addr():][:s.Length]
	wr.Flags |= verbs.Inline
	wr.Data, wr.SGL = append([]byte(nil), b...), nil
	clear(b)
}

// reap waits for at least one completion and handles all completions that are there.
func (o *outbox) reap() error {
	n, err := o.await(o.wcs[:], mixPatience)
	if err != nil {
		return fmt.Errorf("message %d of %d: %w", o.complete, o.ops, err)
	}
	for i := range o.wcs[:n] {
		wc := &o.wcs[i]
		switch {
		case wc.Status != verbs.Success:
			return &perf.CompletionError{Op: "message", Msg: wc.ID, Status: wc.Status, Vendor: wc.VendorErr}
		case wc.ID < uint64(o.complete) || wc.ID >= uint64(o.signalled) || wc.QPN != o.qp.QPN():
			return fmt.Errorf("completion of message %d of QP %#x when %d to %d were outstanding: order is broken", wc.ID, wc.QPN, o.complete, o.posted-1)
		}
		o.complete = int(wc.ID) + 1
	}
	return nil
}

// arrived compares a receive's completion wc with the one that message k must have: op, size and
// imm are those of the message. If the message is a SEND, arrived also compares the bytes in buf.
func arrived(wc *verbs.WC, buf []byte, msgs perf.Pattern, k int, op verbs.WROpcode, size int, imm uint32) error {
	want, flags := verbs.WCRecv, verbs.WithImm
	if op == verbs.OpWriteImm {
		want = verbs.WCRecvWriteImm
	}
	if op == verbs.OpSend {
		flags = 0
	}
	if wc.Status != verbs.Success || wc.Opcode != want || wc.Flags != flags || wc.ByteLen != uint32(size) || wc.Imm != imm {
		return fmt.Errorf("message %d: %v, opcode %v flags %v imm %#x, %d bytes; want %v %v %#x, %d bytes",
			k, wc.Status, wc.Opcode, wc.Flags, wc.Imm, wc.ByteLen, want, flags, imm, size)
	}
	if want == verbs.WCRecv {
		if off := msgs.Check(buf[:size], uint64(k)); off >= 0 {
			return &perf.DataError{Op: "message", Msg: uint64(k), Offset: off, Got: uint64(buf[off])}
		}
	}
	return nil
}

var errForeign = errors.New("completion of a queue pair that the application does not have")

// pair is a connection whose one end, on host, sends messages that the server receives. The seed
// has drawn its parameters.
type pair struct {
	index    int
	host     string // the sender's host
	ops      int    // number of messages
	depth    int    // the most messages in flight
	draw     *draw
	msgs     perf.Pattern
	received int // messages that the server has received
}

// pair draws the parameters of connection number i.
func (d *draw) pair(i int) pair {
	return pair{
		index: i, host: fmt.Sprintf("cn%d", i%2), ops: d.between(50, 300), depth: d.between(1, 32),
		draw: newDraw(d.Uint64()), msgs: perf.Pattern{Seed: d.Uint64()},
	}
}

// open makes the sender's end with a buffer of slot bytes for each message in flight, and connects
// it. It returns the outbox, and the region that the server names.
func (p *pair) open(e *env, ctx verbs.Context, of verbs.QPType, service string, params rdmacm.Params, slot int) (*outbox, remote, error) {
	end, err := newEndsOf(ctx, verbs.QPInit{Type: of, MaxSendWR: p.depth, MaxInline: maxInline}, p.depth*slot, 2*p.depth, verbs.LocalWrite)
	if err != nil {
		return nil, remote{}, err
	}
	regions, err := e.dial(e.rack.Host(p.host), ctx, end.qp, service, params, []byte{byte(p.index)})
	if err != nil {
		return nil, remote{}, err
	}
	return &outbox{ends: end, draw: p.draw, ops: p.ops, depth: p.depth}, regions[0], nil
}
