package exercise

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// lostPacket loses one packet of a few WRITEs and captures how the connection heals. The learner reads the
// ladder.
var lostPacket = Exercise{
	Name: "lost-packet", Answers: []string{"lost", "noticed", "again"}, prepare: prepareLost, check: checkLost,
}

// The WRITEs of lostPacket: lostWrites of lostWrite bytes, in packets of lostMTU bytes.
const (
	lostWrites = 4
	lostWrite  = 16 << 10
	lostMTU    = 1024
	lostEach   = lostWrite / lostMTU // packets of a WRITE
)

func prepareLost(ctx context.Context, l *Lab) error {
	// A packet in the middle of any but the last WRITE: so the packets behind it show the loss.
	offset := l.random.IntN(lostWrites-1)*lostEach + 1 + l.random.IntN(lostEach-2)
	rule := fault.Rule{Link: l.Client, Dir: fault.Up, Kind: fault.Loss, Match: fault.Match{Class: "request", PSNOffset: &offset}, Count: 1}
	id, err := l.inject(ctx, rule)
	if err != nil {
		return err
	}
	capture, err := l.capture(ctx)
	if err != nil {
		return errors.Join(err, l.heal(ctx, id))
	}
	_, runErr := l.run(ctx, perf.Config{Test: "write_bw", To: l.Server, Size: lostWrite, Path: perf.Path{MTU: lostMTU}, Iters: lostWrites, Depth: lostWrites})
	packets, err := capture.end()
	if err := errors.Join(runErr, err, l.heal(ctx, id)); err != nil {
		return err
	}
	rows, err := rowsOf(packets)
	if err != nil {
		return err
	}
	if lost, _, _ := healed(rows); lost == nil {
		return errors.New("no packet was lost, or none was sent again: other faults are at work; end them by `rdmalab heal`, and prepare the exercise again")
	}
	return os.WriteFile(l.CaptureFile(), packets, 0o600)
}

// healed returns the row of the first request that was lost, the number of the packet by which its sender
// noticed the loss, and how many requests were sent again.
func healed(rows []ladder.Row) (lost *ladder.Row, noticed, again int) {
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Opcode.Is(wire.OpResponse) || r.Message != "":
		case r.Lost && lost == nil:
			lost = r
		case lost != nil && r.Resend.Why != ladder.Once && r.QPN == lost.QPN:
			if noticed == 0 {
				noticed = r.Resend.Cause
			}
			again += r.Packets
		}
	}
	if noticed == 0 {
		return nil, 0, 0
	}
	return lost, noticed, again
}

func checkLost(_ context.Context, l *Lab, r *Report) error {
	packets, err := os.ReadFile(l.CaptureFile())
	if err != nil {
		return err
	}
	rows, err := rowsOf(packets)
	if err != nil {
		return err
	}
	lost, noticed, again := healed(rows)
	if lost == nil {
		return fmt.Errorf("%s does not show how a lost packet heals; prepare the exercise again", l.CaptureFile())
	}
	r.number("lost", int64(lost.PSN), "look for the arrow that ends in a cross, and take its relative PSN")
	r.number("noticed", int64(noticed), "look at the note of the first packet that was sent again: it names its cause")
	r.number("again", int64(again), "count the requests with the note \"again\"; a burst stands for several packets")
	return nil
}
