package raw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Sizes of raw tests in bytes, and other constants. A message of up to maxPayload bytes becomes a
// frame as long as a WRITE with the same payload (with Ethernet, IPv4, UDP, BTH, RETH, ICRC).
const (
	maxPayload = 4096
	overhead   = 14 + 20 + 8 + 12 + 16 + 4

	defaultBW    = 50_000 // messages of a bandwidth test
	defaultLat   = 5000   // messages of a latency test
	defaultDepth = 128
	maxIters     = 10_000_000
	askEvery     = 32 // at least one of askEvery data frames in a row requests an answer (opAsk)
	batch        = 32 // frames that are sent at once, at most
	// defaultStall is the default of run.stall, which tests change.
	defaultStall = 100 * time.Millisecond
	// giveUp is the number of waits in a row without an answer after which a run fails.
	giveUp = 20
)

// Resolve returns the MAC address of a neighbour; false if it is unknown.
type Resolve func(netip.Addr) (wire.MAC, bool)

// Run runs the test perf.RawBW or perf.RawLat with the host that has address addr. With an error,
// the Result has the measurements from before the error.
func (h *Host) Run(
	ctx context.Context, addr netip.Addr, resolve Resolve, cfg perf.Config, tell func(perf.Progress),
) (perf.Result, error) {
	cfg.Size, cfg.Depth = max(cfg.Size, 8), min(cmp.Or(cfg.Depth, defaultDepth), perf.MaxDepth)
	iters := defaultBW
	if cfg.Test == perf.RawLat {
		iters, cfg.Depth = defaultLat, 1
	}
	cfg.Iters = cmp.Or(cfg.Iters, iters)
	res := perf.Result{Test: cfg.Test, From: h.Name, To: cfg.To, Config: cfg, MTU: min(maxPayload, h.LinkMTU-overhead)}
	if cfg.Size > perf.MaxSize || cfg.Iters < 1 || cfg.Iters > maxIters || cfg.Depth < 1 {
		return res, fmt.Errorf("raw test: size %d, iters %d, depth %d: want at most %d, %d, %d",
			cfg.Size, cfg.Iters, cfg.Depth, perf.MaxSize, maxIters, perf.MaxDepth)
	}
	dst, ok := resolve(addr)
	if !ok {
		return res, fmt.Errorf("no neighbour has the address %v", addr)
	}
	session := rand.Uint64()
	c, err := h.dial(ctx, addr, session)
	if err != nil {
		return res, fmt.Errorf("raw test with %s: %w", cfg.To, err)
	}
	defer c.Close() // ends the peer's part; an error does not matter
	e, err := h.openEnd(session)
	if err != nil {
		return res, err
	}
	r := &run{end: e, ctx: ctx, cfg: &cfg, dst: dst, tell: tell, stall: defaultStall}
	if cfg.Test == perf.RawLat {
		err = r.latency(&res)
	} else {
		err = r.bandwidth(&res)
	}
	return res, errors.Join(err, e.close())
}

// run is the client of a raw test, which sends plain Ethernet frames without RDMA.
type run struct {
	*end
	ctx  context.Context
	cfg  *perf.Config
	dst  wire.MAC
	tell func(perf.Progress)
	// stall is how long the client waits for an answer before the frames that were not answered
	// count as lost.
	stall time.Duration
}

func (r *run) send(n int, op byte, number uint64) error {
	r.tx.Reset()
	r.add(n, op, number)
	_, err := r.port.Send(&r.tx)
	return err
}

func (r *run) add(n int, op byte, number uint64) {
	b := r.tx.Alloc(n)[:n]
	putFrame(b, r.dst, r.self, op, r.session, number)
	r.tx.Add(0, b)
}

// await waits for answers of the peer, at most for r.stall, and returns the highest number in them.
// ok is false if none arrived.
func (r *run) await() (number uint64, ok bool, err error) {
	for end := time.Now().Add(r.stall); ; {
		number, ok, err := r.poll()
		if ok || err != nil {
			return number, ok, err
		}
		if err := r.ctx.Err(); err != nil {
			return 0, false, err
		}
		left := time.Until(end)
		if left <= 0 {
			return 0, false, nil
		}
		if err := r.waiter.Wait(left); err != nil {
			return 0, false, err
		}
	}
}

// poll receives once, without waiting, and looks for answers of the peer; its results are those of
// await.
func (r *run) poll() (number uint64, ok bool, err error) {
	if _, err := r.port.Recv(&r.rx); err != nil {
		return 0, false, err
	}
	for _, f := range r.rx.Frames {
		if op, n, mine := parseFrame(f.Data, r.session); mine && op == opAnswer {
			number, ok = max(number, n), true
		}
	}
	return number, ok, nil
}

// latency sends one frame at a time and waits for its answer. After an error, res has what was
// measured before.
func (r *run) latency(res *perf.Result) error {
	size := min(r.cfg.Size, res.MTU) + overhead
	var took perf.Latencies
	missed, lost := 0, 0 // number of waits without an answer: in a row, and in all
	begun := time.Now()
	defer func() {
		res.Elapsed, res.Counters = time.Since(begun), lostFrames(lost)
		if took.Count()+lost > 0 {
			res.Lat = took.Summary(r.cfg.Size, took.Count()+lost)
		}
	}()
	for i := 1; i <= r.cfg.Iters; i++ {
		start := time.Now()
		if err := r.send(size, opEcho, uint64(i)); err != nil {
			return err
		}
		for {
			n, ok, err := r.await()
			if err != nil {
				return err
			}
			if !ok {
				lost++
				if missed++; missed >= giveUp {
					return fmt.Errorf("no echo of %d frames in a row: is the link up?", missed)
				}
				break
			}
			if n == uint64(i) {
				missed = 0
				took.Record(time.Since(start))
				break
			}
		}
		if i%1000 == 0 {
			r.tell(perf.Progress{Phase: r.cfg.Test, Done: i, Total: r.cfg.Iters})
		}
	}
	return nil
}

// bandwidth sends frames in one direction, with at most cfg.Depth of them in flight. From time to
// time the peer reports how many have arrived. If its report does not come, the client asks once
// more; the frames that are missing in the answer count as lost. After an error, res has what was
// measured before.
func (r *run) bandwidth(res *perf.Result) error {
	frames := (r.cfg.Size + res.MTU - 1) / res.MTU // frames of a message
	total := uint64(frames) * uint64(r.cfg.Iters)
	var sent, arrived, lost uint64
	silent := 0
	begun := time.Now()
	defer func() { r.arrived(res, arrived, lost, frames, time.Since(begun)) }()
	for arrived+lost < total {
		room := int(min(total-sent, uint64(r.cfg.Depth)-(sent-arrived-lost), batch))
		r.tx.Reset()
		for range room {
			size := res.MTU
			if left := r.cfg.Size - int(sent%uint64(frames))*res.MTU; left < size {
				size = left
			}
			op := byte(opData)
			if sent++; sent%min(askEvery, uint64(max(1, r.cfg.Depth/2))) == 0 || sent == total {
				op = opAsk
			}
			r.add(size+overhead, op, sent)
		}
		if _, err := r.port.Send(&r.tx); err != nil {
			return err
		}
		n, ok, err := r.poll()
		if err == nil && !ok && (sent == total || sent-arrived-lost >= uint64(r.cfg.Depth)) {
			n, ok, err = r.await()
			if err == nil && !ok {
				if silent++; silent >= giveUp {
					return fmt.Errorf("no answer %d times in a row: is the link up?", silent)
				}
				if n, ok, err = r.probe(); ok {
					lost = sent - n
				}
			}
		}
		if err != nil {
			return err
		}
		if ok {
			silent, arrived = 0, max(arrived, n)
			lost = min(lost, sent-arrived) // frames that counted as lost may have arrived late
		}
		if sent%100_000 < batch {
			r.tell(perf.Progress{Phase: r.cfg.Test, Done: int(sent / uint64(frames)), Total: r.cfg.Iters})
		}
	}
	return nil
}

// arrived puts into res the bandwidth of the frames that have arrived, and the number of lost ones.
// frames is the number of frames of a message. If no frame has arrived or was lost, res gets no
// bandwidth.
func (r *run) arrived(res *perf.Result, arrived, lost uint64, frames int, took time.Duration) {
	res.Elapsed, res.Counters = took, lostFrames(int(lost))
	if arrived+lost == 0 {
		return
	}
	messages := float64(arrived) / float64(frames)
	rate := messages * float64(r.cfg.Size) / (1 << 20) / took.Seconds()
	res.BW = &perf.Bandwidth{
		Bytes: r.cfg.Size, Iters: min(r.cfg.Iters, int((arrived+lost)/uint64(frames))), Peak: rate, Average: rate,
		MsgRate: messages / took.Seconds() / 1e6, TxDepth: r.cfg.Depth, Signaled: askEvery,
	}
}

// lostFrames returns the counters of a Result with n lost frames. A raw test has no other counter.
func lostFrames(n int) map[string]uint64 {
	if n == 0 {
		return nil
	}
	return map[string]uint64{"raw_frames_lost": uint64(n)}
}

// probe asks the peer how many frames have arrived.
func (r *run) probe() (uint64, bool, error) {
	if err := r.send(minFrame, opProbe, 0); err != nil {
		return 0, false, err
	}
	return r.await()
}
