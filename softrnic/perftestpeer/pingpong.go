package perftestpeer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Pingpong is a run of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong or ibv_srq_pingpong.
type Pingpong struct {
	// Type is rc, uc, ud or srq.
	Type string `json:"type"`
	// Server waits for the peer's messages; the client sends first.
	Server bool `json:"server"`
	// Size is the length of a message in bytes, the option -s; 0 means 4096, for ud 2048.
	Size int `json:"size"`
	// Iters is the number of messages in each direction, -n; 0 means 1000.
	Iters int `json:"iters"`
	// MTU is the path MTU in bytes, -m; 0 means 1024. Not used for ud.
	MTU int `json:"mtu"`
	// Depth is how many receives are posted, -r; 0 means 500.
	Depth int `json:"depth"`
	// QueuePairs is the number of queue pairs of srq, -q; 0 means 16.
	QueuePairs int `json:"queuePairs"`
	// Source is the index of the address that this side announces; −1 means the first IPv4 address.
	Source int `json:"source"`
	// Patience is how long to wait for one message; 0 means 30 s.
	Patience time.Duration `json:"patienceNs"`
}

// pingpongTypes are the values of Type.
var pingpongTypes = map[string]verbs.QPType{"rc": verbs.RC, "uc": verbs.UC, "ud": verbs.UD, "srq": verbs.RC}

// fillByte is the byte that the pingpong programs send, except ibv_srq_pingpong.
const fillByte = 0x7b

// Validate sets defaults, and returns an error for the first wrong field.
func (p *Pingpong) Validate() error {
	typ, ok := pingpongTypes[p.Type]
	if p.Size == 0 {
		p.Size = 4096
		if typ == verbs.UD {
			p.Size = 2048
		}
	}
	p.Iters = cmp.Or(p.Iters, 1000)
	p.MTU = cmp.Or(p.MTU, 1024)
	p.Depth = cmp.Or(p.Depth, 500)
	p.QueuePairs = cmp.Or(p.QueuePairs, 16)
	switch {
	case !ok:
		return fmt.Errorf("pingpong type %q: want rc, uc, ud or srq", p.Type)
	case p.Size < 1 || p.Size > MaxSize || typ == verbs.UD && p.Size > int(verbs.MTU4096):
		return fmt.Errorf("size %d: want 1 to %d bytes, of a datagram 1 to %d", p.Size, MaxSize, verbs.MTU4096)
	case p.Iters < 1 || p.Iters > maxIters:
		return fmt.Errorf("iters %d: want 1 to %d", p.Iters, maxIters)
	case p.Depth < 1 || p.Depth > maxDepth:
		return fmt.Errorf("depth %d: want 1 to %d", p.Depth, maxDepth)
	case p.QueuePairs < 1 || p.QueuePairs > maxQueuePairs || p.Type == "srq" && p.QueuePairs > p.Depth:
		return fmt.Errorf("%d queue pairs: want 1 to %d, and no more than receives", p.QueuePairs, maxQueuePairs)
	}
	return checkMTU(p.MTU)
}

func checkMTU(n int) error {
	if verbs.MTU(n).Valid() {
		return nil
	}
	return fmt.Errorf("mtu %d: want 256, 512, 1024, 2048 or 4096", n)
}

// Run executes the exchange over conn, then the ping-pong. The caller sets conn's deadline for the
// exchange, and closes conn afterwards.
func (p Pingpong) Run(ctx verbs.Context, conn io.ReadWriter) (Result, error) {
	var r Result
	if err := p.Validate(); err != nil {
		return r, err
	}
	if p.Type == "srq" {
		return p.runSRQ(ctx, conn)
	}
	slots := min(p.Depth, max(1, 16<<20/p.Size))
	typ := pingpongTypes[p.Type]
	slot := p.Size
	if typ == verbs.UD {
		slot += verbs.GRHLen
	}
	// The first slot has the message that this side sends.
	e, err := openEnd(ctx, typ, slot*(slots+1), 16, slots, p.Patience)
	if err != nil {
		return r, err
	}
	run := &pingpongRun{rally: rally{Pingpong: p}, end: e, slot: slot, slots: slots, got: make([]byte, slot)}
	err = run.both(ctx, conn, &r)
	return r, errors.Join(err, e.close())
}

// pingpongRun is a ping-pong over one queue pair.
type pingpongRun struct {
	rally       rally
	end         *end
	slot, slots int    // length of a slot of the memory in bytes, and number of slots for receives
	got         []byte // the message that is being checked
	posted      int    // number of posted sends
}

// rally has the state that ping-pongs of all types have in common.
type rally struct {
	Pingpong
	sent, rcvd int // number of completed sends, and of received messages
}

// exchange exchanges texts with the peer. It calls `hear`, which connects the queue pairs to those
// that the received text names. The server connects before it answers, the client when it has the
// answer. Then the client sends "done"; like the programs, the server does not check the content of
// this message.
func (p *rally) exchange(conn io.ReadWriter, text []byte, hear func(heard []byte) error) error {
	say := func(b []byte) func() error { return func() error { _, err := conn.Write(b); return err } }
	listen := func() error {
		b := make([]byte, len(text))
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		return hear(b)
	}
	steps := []func() error{say(text), listen, say([]byte(doneText))}
	if p.Server {
		await := func() error { _, err := io.ReadFull(conn, make([]byte, len(doneText))); return err }
		steps = []func() error{listen, say(text), await}
	}
	for _, f := range steps {
		if err := f(); err != nil {
			return fmt.Errorf("exchange: %w", err)
		}
	}
	return nil
}

// measure calls play and computes the result, also if play fails.
func (p *rally) measure(rt verbs.Runtime, r *Result, play func() error) error {
	begin := rt.Now()
	err := play()
	r.Elapsed = rt.Now().Sub(begin)
	r.Iters, r.Bytes = min(p.sent, p.rcvd), uint64(p.sent+p.rcvd)*uint64(p.Size)
	r.rates()
	if err == nil {
		rt.Sleep(farewell)
	}
	return err
}

func (p *rally) wrongSize(n int) error {
	return fmt.Errorf("%w: message %d has %d bytes, not %d; both sides must be given the same size", ErrWrong, p.rcvd, n, p.Size)
}

func (p *pingpongRun) both(ctx verbs.Context, conn io.ReadWriter, r *Result) error {
	for i := range p.got {
		p.got[i] = fillByte
	}
	if err := p.end.mr.WriteAt(p.got[:p.rally.Size], 0); err != nil {
		return err
	}
	for i := range p.slots {
		if err := p.receive(i + 1); err != nil {
			return err
		}
	}
	our := place{QPN: p.end.qp.QPN(), PSN: wire.PSN(p.end.rt.Rand().Uint32() & 0xffffff)}
	source, err := announced(ctx, p.rally.Source)
	if err != nil {
		return err
	}
	our.GID = ctx.Device().GIDs[source]
	err = p.rally.meet(conn, []place{our}, 1, source, func(_ int, l link) error {
		r.QPN, r.PeerQPN = uint32(our.QPN), uint32(l.qpn)
		return p.end.connect(l)
	})
	if err != nil {
		return err
	}
	return p.rally.measure(p.end.rt, r, p.play)
}

// meet exchanges n places with the peer (see place). The first places of this side are those in
// `our`, the others are empty. For each place in `our`, meet calls the function `connect` with the
// link to the peer's place of the same index.
func (p *rally) meet(conn io.ReadWriter, our []place, n, source int, connect func(i int, l link) error) error {
	var text []byte
	for i := range n {
		var own place
		if i < len(our) {
			own = our[i]
		}
		text = own.AppendTo(text)
	}
	return p.exchange(conn, text, func(heard []byte) error {
		for i := range our {
			var their place
			if err := their.Parse(heard[i*placeLen : (i+1)*placeLen]); err != nil {
				return err
			}
			if err := noAddress(their.GID); err != nil {
				return err
			}
			l := link{
				to: verbs.AHAttr{DestGID: their.GID, SourceGID: source}, qpn: their.QPN, theirPSN: their.PSN, ourPSN: our[i].PSN, mtu: verbs.MTU(p.MTU),
			}
			if err := connect(i, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// doneText is the last message of an exchange, both of the pingpong programs and of perftest.
const doneText = "done\x00"

// announced returns the index of the address that a run announces: source, or if source is negative
// that of the first IPv4 address, or 0 if there is none.
func announced(ctx verbs.Context, source int) (int, error) {
	gids := ctx.Device().GIDs
	if source >= len(gids) {
		return 0, fmt.Errorf("this NIC has no address %d; it has %v", source, gids)
	}
	for i, g := range gids {
		if source < 0 && g.Addr().Is4() {
			return i, nil
		}
	}
	return max(source, 0), nil
}

func (p *pingpongRun) receive(slot int) error {
	return p.end.qp.PostRecv(verbs.RecvWR{ID: uint64(slot), SGL: []verbs.SGE{p.end.mr.SGE(slot*p.slot, p.slot)}})
}

func (p *pingpongRun) send() error {
	p.posted++
	return p.end.qp.PostSend(p.end.address(verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{p.end.mr.SGE(0, p.rally.Size)}}))
}

// play answers each message with a message, until both sides have received all. Like the programs,
// it sends the next message when its last one has completed and the peer's message has arrived.
func (p *pingpongRun) play() error {
	if !p.rally.Server {
		if err := p.send(); err != nil {
			return err
		}
	}
	answered := 0
	for p.rally.sent < p.rally.Iters || p.rally.rcvd < p.rally.Iters {
		wcs, err := p.end.take()
		if err != nil {
			return err
		}
		for i := range wcs {
			if wcs[i].Opcode != verbs.WCRecv {
				p.rally.sent++
			} else if err := p.received(&wcs[i]); err != nil {
				return err
			}
		}
		if p.rally.sent == p.posted && p.rally.rcvd > answered && p.posted < p.rally.Iters {
			answered = p.rally.rcvd
			if err := p.send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// received checks a message and posts its receive again.
func (p *pingpongRun) received(wc *verbs.WC) error {
	p.rally.rcvd++
	if n := int(wc.ByteLen) - p.end.grh(); n != p.rally.Size {
		return p.rally.wrongSize(n)
	}
	if err := p.end.mr.ReadAt(p.got, int(wc.ID)*p.slot); err != nil {
		return err
	}
	if err := filled(p.got[p.end.grh():], fillByte, p.rally.rcvd); err != nil {
		return err
	}
	return p.receive(int(wc.ID))
}

// filled checks every byte of a message.
func filled(b []byte, want byte, message int) error {
	for i, v := range b {
		if v != want {
			return fmt.Errorf("%w: byte %d of message %d is %#x, not %#x", ErrWrong, i, message, v, want)
		}
	}
	return nil
}
