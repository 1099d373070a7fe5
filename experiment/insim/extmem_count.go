package insim

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// A client sends WRITEs for countWarm before rates are measured, and then for countTime.
	countWarm = 100 * time.Microsecond
	countTime = 500 * time.Microsecond
	// countQuiet is how long after the last WRITE the switch may take to bring all counts to the
	// server's memory. It is longer than all timers of the switch.
	countQuiet = 20 * time.Millisecond
)

func (p *Sim) Counting(ctx context.Context, l experiment.Counting) (out experiment.CountingResult, err error) {
	rack, conns := lentRack{hosts: 1, servers: 1, bytes: 64 << 10}, 0
	if l.Mode != "" {
		rack.rule = fmt.Sprintf("server: ms0, action: count, store: ms1, mode: %s, slots: 1, depth: %d", l.Mode, l.Depth)
		conns = 1
	}
	r, err := p.lent(ctx, rack, nil)
	if err != nil {
		return out, err
	}
	err = r.drive(ctx, conns, func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		s, err := r.stream(ctx, verbs.OpWrite, l.Bytes)
		if err != nil {
			return err
		}
		if err := s.until(rt.Now().Add(countWarm)); err != nil {
			return err
		}
		from, done, adds, traffic := rt.Now(), s.done, r.adds(), r.traffic()
		if err := s.until(from.Add(countTime)); err != nil {
			return err
		}
		span := rt.Now().Sub(from).Seconds()
		out.Client, out.Adds = float64(s.done-done)/span, float64(r.adds()-adds)/span
		out.Traffic = float64(r.traffic()-traffic) * 8 / span
		if err := s.drain(); err != nil {
			return err
		}
		rt.Sleep(countQuiet)
		out.Sent, out.Counted = uint64(s.done), binary.LittleEndian.Uint64(r.memory[1])
		return nil
	})
	return out, err
}

// adds returns how many atomics the NIC of ms1, the server with the counter, has executed.
func (r *lentRun) adds() uint64 { return r.rack.Host("ms1").Counters().RxAtomicRequests }

// traffic returns the bytes that the link of ms1, the server with the counter, has carried in both
// directions, including the overhead of frames on the wire.
func (r *lentRun) traffic() (n uint64) {
	for _, d := range []fault.Dir{fault.Up, fault.Down} {
		s := r.rack.Host("ms1").Link().Stats(d)
		n += s.Bytes + s.Delivered*uint64(r.over)
	}
	return n
}
