package insim

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// rateFrames is how many frames a BufferRate load has. The rate is that of the second half of
	// the frames that pass, without the last rateEdge.
	rateFrames, rateEdge = 4000, 200
	// rateHigh is how many of the frames wait in the switch and so are not stored in the ring.
	rateHigh = 64
	// closed and open are rates of the port to ms0: closed while frames are stored, open while they
	// are loaded. At the rate closed a frame takes 12 ms.
	closed, open = "1Mbit", "400Gbit"
)

func (p *Sim) BufferRate(ctx context.Context, l experiment.BufferRate) (float64, error) {
	if l.Native {
		return p.nativeRate(ctx, l)
	}
	rule := func(rate string) string {
		return fmt.Sprintf("id: slow, server: ms0, action: buffer, ring: ms1, mode: %s, rate: %s, high: %d, low: %d, entries: %d, entry: %d, depth: %d",
			l.Mode, rate, rateHigh, rateHigh/2, 2*rateFrames, l.Entry, l.Depth)
	}
	var stored, loaded []clock.Time
	var frame wire.Frame
	r, err := p.lent(ctx, lentRack{hosts: 2, servers: 1, bytes: 2 * rateFrames * l.Entry, rule: rule(closed)}, func(now clock.Time, host string, b []byte) bool {
		switch {
		case host == "ms1" && wire.ParseFrame(b, &frame) == nil && frame.BTH.Opcode == wire.RCWriteOnly:
			stored = append(stored, now)
		case host == "ms0":
			_, _, ours := numberOf(b)
			if ours {
				loaded = append(loaded, now)
			}
			return ours
		}
		return false
	})
	if err != nil {
		return 0, err
	}
	err = r.drive(ctx, 1, func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		senders := 2 // their frames come at twice the rate that the ring can take
		if l.Direction == experiment.Load {
			senders = 1 // one sender is slower than the ring, so all frames are stored and can be loaded
		}
		for i := range senders {
			r.send(i, l.Bytes, rateFrames/senders)
		}
		rt.Sleep(time.Duration(rateFrames/senders)*r.slot(l.Bytes) + time.Millisecond)
		if l.Direction == experiment.Store {
			return nil
		}
		if err := r.setRule(asText(rule(open))); err != nil {
			return err
		}
		for end := rt.Now().Add(time.Second); r.rack.Counters("buffer")["sent"] < rateFrames; rt.Sleep(lentPoll) {
			if rt.Now() > end {
				return fmt.Errorf("not all frames have left the switch after a second; its counters are %v", r.rack.Counters("buffer"))
			}
		}
		rt.Sleep(lentPoll)
		return nil
	})
	if err != nil {
		return 0, err
	}
	times := stored
	if l.Direction == experiment.Load {
		times = loaded
	}
	if len(times) < 3*rateEdge {
		return 0, fmt.Errorf("only %d frames have passed: too few to measure a rate", len(times))
	}
	rate, err := perSecond(times[len(times)/2 : len(times)-rateEdge])
	return rate * float64(l.Bytes) * 8, err
}

const (
	nativeDepth = 64                     // messages in flight
	nativeTime  = 300 * time.Microsecond // how long they are counted
)

// nativeRate measures messages of a host to a server by verbs, on one connection with the largest path
// MTU.
func (p *Sim) nativeRate(ctx context.Context, l experiment.BufferRate) (float64, error) {
	r, err := p.lent(ctx, lentRack{hosts: 2, bytes: l.Bytes}, nil)
	if err != nil {
		return 0, err
	}
	op := verbs.OpWrite
	if l.Direction == experiment.Load {
		op = verbs.OpRead
	}
	rate := 0.0
	err = r.drive(ctx, 0, func(ctx verbs.Context) error {
		s, err := r.stream(ctx, op, l.Bytes)
		if err != nil {
			return err
		}
		if err := s.until(ctx.Runtime().Now().Add(nativeTime / 3)); err != nil {
			return err
		}
		from, before := ctx.Runtime().Now(), s.done
		err = s.until(from.Add(nativeTime))
		rate = float64(s.done-before) / ctx.Runtime().Now().Sub(from).Seconds()
		return err
	})
	return rate * float64(l.Bytes) * 8, err
}

// stream is a client's stream of messages to ms0.
type stream struct {
	rt   verbs.Runtime
	qp   verbs.QP
	cq   verbs.CQ
	wr   verbs.SendWR
	wcs  [nativeDepth]verbs.WC
	out  int // messages in flight
	done int // messages that have ended
}

// stream connects cn0 to the memory service of ms0, for messages of size bytes.
func (r *lentRun) stream(ctx verbs.Context, op verbs.WROpcode, size int) (*stream, error) {
	params := rdmacm.Params{PathMTU: verbs.MTU4096}
	return newStream(ctx, r.rack.Host("cn0"), r.rack.Host("ms0"), params, op, size, ctx.Runtime().Now().Add(time.Second))
}

// newStream connects a host to the memory service of a server, for messages of size bytes.
func newStream(ctx verbs.Context, h, server *simrack.Host, params rdmacm.Params, op verbs.WROpcode, size int, deadline clock.Time) (*stream, error) {
	s := &stream{rt: ctx.Runtime()}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	if s.cq, err = ctx.CreateCQ(2 * nativeDepth); err != nil {
		return nil, err
	}
	mr, err := pd.RegMR(make([]byte, size), size, verbs.LocalWrite)
	if err != nil {
		return nil, err
	}
	if s.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: nativeDepth}); err != nil {
		return nil, err
	}
	mem, err := memservice.Dial(h.Manager(ctx), s.qp, server.Addr(), params, deadline)
	s.wr = verbs.SendWR{Op: op, RKey: mem.RKey, RemoteAddr: mem.Addr, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, size)}}
	return s, err
}

// until keeps nativeDepth messages in flight until the time end.
func (s *stream) until(end clock.Time) error {
	for s.rt.Now() < end {
		for ; s.out < nativeDepth; s.out++ {
			if err := s.qp.PostSend(s.wr); err != nil {
				return err
			}
		}
		if err := s.reap(); err != nil {
			return err
		}
	}
	return nil
}

// reap waits for completions, takes them, and counts the messages that have ended.
func (s *stream) reap() error {
	if err := s.cq.Wait(s.rt.Now().Add(time.Second)); err != nil {
		return err
	}
	n, err := s.cq.Poll(s.wcs[:])
	for _, wc := range s.wcs[:n] {
		if wc.Status != verbs.Success {
			return fmt.Errorf("a message failed: %v", wc.Status)
		}
	}
	s.out -= n
	s.done += n
	return err
}

// drain waits until no message is in flight.
func (s *stream) drain() error {
	for s.out > 0 {
		if err := s.reap(); err != nil {
			return err
		}
	}
	return nil
}

// incastPoll is the interval at which Incast counts the frames in the switch.
const incastPoll = 2 * time.Microsecond

func (p *Sim) Incast(ctx context.Context, l experiment.Incast) (out experiment.IncastResult, err error) {
	each := l.Bytes / l.Frame / l.Senders
	rack := lentRack{hosts: l.Senders, servers: max(1, l.Servers), queue: l.Room}
	if l.Servers > 0 {
		const entry = 1552 // an entry of this size has room for any frame of Ethernet
		entries := each*l.Senders + l.Servers
		// Half of the room is for frames that wait for the port, half for those that wait for the ring.
		rack.rule = fmt.Sprintf("id: slow, server: ms0, action: buffer, ring: %q, mode: %s, rate: %s, high: %d, low: %d, entries: %d, entry: %d",
			serverList(l.Servers), l.Mode, fault.FormatRate(p.Cost.Link.Rate), l.Room/2, l.Begin(), entries, entry)
		rack.bytes, rack.queue = (entries/l.Servers+1)*entry, 0
	}
	var began, last clock.Time
	next := make([]int, l.Senders)
	arrived := 0
	r, err := p.lent(ctx, rack, func(now clock.Time, _ string, b []byte) bool {
		sender, n, ours := numberOf(b)
		if ours {
			if n < next[sender] {
				out.Disorder++
			}
			next[sender] = n + 1
			arrived++
			last = now
		}
		return ours
	})
	if err != nil {
		return out, err
	}
	err = r.drive(ctx, l.Servers, func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		began = rt.Now()
		before := r.inSwitch()
		for i := range l.Senders {
			r.send(i, l.Frame, each)
		}
		sent := began.Add(time.Duration(each) * r.slot(l.Frame))
		polls, held := 0, 0
		for quiet := 0; quiet < 100; {
			rt.Sleep(incastPoll)
			now := r.inSwitch()
			out.Peak = max(out.Peak, now.held*l.Frame)
			if rt.Now() > sent && now.held > 0 {
				polls++
				held += now.held * l.Frame
			}
			if now.dropped > before.dropped && out.Loss == 0 {
				out.Loss = rt.Now().Sub(began)
			}
			if quiet++; arrived+int(now.dropped-before.dropped) < each*l.Senders {
				quiet = 0
			}
			if rt.Now().Sub(began) > time.Second {
				return fmt.Errorf("%d of %d frames have arrived after a second: %v", arrived, each*l.Senders, r.rack.Counters("buffer"))
			}
		}
		out.Held = float64(held) / float64(max(1, polls))
		return nil
	})
	out.Arrived, out.Last = arrived*l.Frame, last.Sub(began)
	return out, err
}

// inSwitch is a count of frames at a moment: held is how many are in the switch, and dropped how
// many the switch has dropped so far.
type inSwitch struct {
	held    int
	dropped uint64
}

// inSwitch counts the frames in the switch: those that it has queued, and those that wait for the
// links to ms0 and to the servers of the ring.
func (r *lentRun) inSwitch() (n inSwitch) {
	c := r.rack.Counters("buffer")
	n.held = int(c["waiting"])
	n.dropped = c["full"] + c["blocked"] + c["long"] + c["lost"] + c["down"]
	for i := range r.memory {
		s := r.rack.Host(fmt.Sprintf("ms%d", i)).Link().Stats(fault.Down)
		n.held += int(s.Sent - s.Delivered - s.LostQueue)
		n.dropped += s.LostQueue
	}
	return n
}
