package experiment

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// BDP is the bandwidth-delay product of the way of a Recovery, in packets.
const BDP = 120

// Recovery is a load of WRITEs of 64 KiB by one queue pair at path MTU 1024, over a way of 40 Gb/s
// whose round trip is as long as BDP packets take to send. On a rack in slow motion only Loss, BothWays, Messages and Seed
// count: its file says everything else.
type Recovery struct {
	Kind selective.Kind
	// Window is how many packets may be in flight, Ahead how many the receiver can hold ahead; 0 means
	// four windows.
	Window, Ahead int
	// Loss is the probability that a packet of the client is lost; with BothWays also one of the
	// server. Late is by how many packets' time a packet is late at most: each packet is late by a
	// random time, as if packets of a flow took many ways.
	Loss     float64
	BothWays bool
	Late     int
	Messages int
	Seed     uint64 // 0 means 1
	// If Software.Packets is not 0, the load is Software instead.
	Software SoftwareRecovery
}

// RecoveryResult is what a Recovery has measured: the share of the way that payload had, how often a
// packet was sent, and how often one arrived that the server had already executed, each on average,
// and how many ACK timeouts there were.
type RecoveryResult struct {
	Goodput, Transmissions, Twice float64
	Timeouts                      uint64
	Software                      SoftwareResult
	// Kind and Twin are of a rack: the recovery of its file, and what the simulator has measured with this file.
	Kind selective.Kind
	Twin *RecoveryResult
}

// lossRecovery compares how queue pairs recover from losses.
var lossRecovery = Experiment{
	Name:   "loss-recovery",
	Short:  "goodput of a queue pair against loss and reordering: go-back-N, IRN and RACK",
	Figure: "\"Revisiting Network Support for RDMA\" (IRN, SIGCOMM 2018): selective retransmission against go-back-N",
	Sim:    "1 min", Rack: "5 min, with --quick 2 min", Target: "memory to which the queue pair WRITEs", Cost: "connectx5",
	New: func() Body { return &lossBody{messages: 1500} },
}

type lossBody struct {
	messages int
	seed     uint64
	quick    bool
}

func (b *lossBody) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&b.messages, "messages", b.messages, "WRITEs of 64 KiB in each measurement, 50 to 100000")
	fs.Uint64Var(&b.seed, "seed", 1, "decides which packets are lost")
}

func (b *lossBody) Check(at Place) error {
	if b.messages < 50 || b.messages > 100_000 {
		return fmt.Errorf("--messages %d: want 50 to 100000", b.messages)
	}
	if b.quick = at.Quick; b.quick {
		b.messages = min(b.messages, 300)
	}
	return nil
}

// lossPoint is a measurement: name is what lines call it, model the goodput that a model predicts.
type lossPoint struct {
	load  Recovery
	model float64
}

// lossTable has the goodputs of a model of one queue pair: go-back-N and IRN with windows of 1, 1.5, 2
// and 4 BDP, and RACK with bitmaps of 128, 256, 512 and 4096 packets; 0 means none.
var lossTable = []struct {
	loss      float64
	goBackN   float64
	irn, rack [4]float64
}{
	{0.0001, .989, [4]float64{.989, .994, .999, 1}, [4]float64{}},
	{0.001, .90, [4]float64{.91, .95, .998, .999}, [4]float64{.85, .997, .997, .997}},
	{0.01, .42, [4]float64{.57, .73, .87, .88}, [4]float64{.59, .94, .98, .98}},
	{0.05, .09, [4]float64{.19, .27, .32, .40}, [4]float64{.41, .70, .89, .90}},
	{0.1, .03, [4]float64{.09, .12, .15, .23}, [4]float64{.32, .55, .79, .80}},
}

var (
	irnWindows  = [4]int{BDP, BDP * 3 / 2, 2 * BDP, 4 * BDP}
	rackBitmaps = [4]int{128, 256, 512, 4096}
)

// bestBitmap is the index in rackBitmaps of the bitmap of four BDP.
const bestBitmap = 2

func (b *lossBody) points() (list []lossPoint) {
	add := func(l Recovery, model float64) {
		l.Messages, l.Seed = b.messages, b.seed
		list = append(list, lossPoint{l, model})
	}
	for _, kind := range []selective.Kind{selective.GoBackN, selective.IRN, selective.RACK} {
		add(Recovery{Kind: kind, Window: 2 * BDP}, 1)
	}
	for _, t := range lossTable {
		add(Recovery{Kind: selective.GoBackN, Window: BDP, Loss: t.loss}, t.goBackN)
		for i, w := range irnWindows {
			if !b.quick || i == bestBitmap {
				add(Recovery{Kind: selective.IRN, Window: w, Loss: t.loss}, t.irn[i])
			}
		}
		for i, ahead := range rackBitmaps {
			if !b.quick || i == bestBitmap {
				add(Recovery{Kind: selective.RACK, Window: BDP, Ahead: ahead, Loss: t.loss, BothWays: true}, t.rack[i])
			}
		}
	}
	for _, late := range []int{16, 64} {
		for _, kind := range []selective.Kind{selective.GoBackN, selective.IRN, selective.RACK} {
			add(Recovery{Kind: kind, Window: 2 * BDP, Late: late}, 0)
		}
	}
	return list
}

func (b *lossBody) Run(ctx context.Context, p Platform, r *Report) error {
	if p.On() == OnRack {
		return b.onRack(ctx, p, r)
	}
	r.Columns(
		Column{Key: "loss", Title: "LOSS %", Format: "%.2f", Repeats: true}, Column{Key: "late", Title: "LATE packets"},
		Column{Key: "recovery", Title: "RECOVERY"}, Column{Key: "window", Title: "WINDOW packets"}, Column{Key: "bitmap", Title: "BITMAP packets"},
		Column{Key: "goodput", Title: "GOODPUT", Format: "%.3f"}, Column{Key: "model", Title: "MODEL", Format: "%.3g"}, Column{Key: "transmissions", Title: "TRANSMISSIONS", Format: "%.4f"},
		Column{Key: "twice", Title: "TWICE", Format: "%.4f"}, Column{Key: "timeouts", Title: "TIMEOUTS"},
	)
	points := b.points()
	got := make([]RecoveryResult, len(points))
	for i, x := range points {
		l := x.load
		r.begin(i+1, len(points), "%v at %.2f %%", l.Kind, 100*l.Loss)
		var err error
		if got[i], err = p.Recovery(ctx, l); err != nil {
			r.end("%v", err)
			return fmt.Errorf("%v at a loss of %.2f %%: %w", l.Kind, 100*l.Loss, err)
		}
		r.end("%.3f", got[i].Goodput)
		bitmap := None()
		if l.Kind != selective.GoBackN {
			bitmap = Num(float64(l.reach()))
		}
		r.Add(Num(100*l.Loss), unlessZero(float64(l.Late)), Label(l.Kind.String()), Num(float64(l.Window)), bitmap,
			Num(got[i].Goodput), unlessZero(x.model), Num(got[i].Transmissions), Num(got[i].Twice), Num(float64(got[i].Timeouts)))
	}
	b.judge(r, points, got)
	return b.software(ctx, p, r)
}

func (l *Recovery) reach() int {
	if l.Ahead > 0 {
		return l.Ahead
	}
	return 4 * l.Window
}

// lossLine is the least goodput of RACK with a bitmap of four BDP and of IRN with a window of two,
// and the largest of go-back-N, at a loss.
var lossLines = []struct{ loss, rack, irn, goBackN float64 }{
	{0.001, .98, .97, .92}, {0.01, .95, .82, .45}, {0.1, .75, .12, .06},
}

// judge adds what must hold to the report.
func (b *lossBody) judge(r *Report, points []lossPoint, got []RecoveryResult) {
	find := func(kind selective.Kind, loss float64, window, ahead, late int) (out RecoveryResult) {
		out.Goodput = math.NaN()
		for i := range points {
			if l := points[i].load; l.Kind == kind && l.Loss == loss && l.Window == window && l.Ahead == ahead && l.Late == late {
				out = got[i]
			}
		}
		return out
	}
	base := find(selective.GoBackN, 0, 2*BDP, 0, 0).Goodput
	for _, kind := range []selective.Kind{selective.IRN, selective.RACK} {
		x := find(kind, 0, 2*BDP, 0, 0)
		r.line("L1", math.Abs(x.Goodput/base-1) <= 0.01, "without loss %v has %.4f of the goodput of go-back-n (1 ± 0.01)", kind, x.Goodput/base)
		r.line("L3", x.Transmissions == 1 && x.Twice == 0, "without loss %v sends a packet %.4f times, and %.4f arrive twice (1 and 0)", kind, x.Transmissions, x.Twice)
	}
	for _, want := range lossLines {
		rack := find(selective.RACK, want.loss, BDP, rackBitmaps[bestBitmap], 0)
		irn := find(selective.IRN, want.loss, irnWindows[bestBitmap], 0, 0)
		back := find(selective.GoBackN, want.loss, BDP, 0, 0)
		r.line("L2", rack.Goodput >= want.rack, "at %.1f %% rack with a bitmap of 4 BDP has %.3f (at least %.2f)", 100*want.loss, rack.Goodput, want.rack)
		r.line("L2", irn.Goodput >= want.irn, "at %.1f %% irn with a window of 2 BDP has %.3f (at least %.2f)", 100*want.loss, irn.Goodput, want.irn)
		r.line("L2", back.Goodput <= want.goBackN, "at %.1f %% go-back-n has %.3f (at most %.2f)", 100*want.loss, back.Goodput, want.goBackN)
	}
	for i := range points {
		if l := points[i].load; l.Kind != selective.GoBackN && l.Loss > 0 {
			if most := 1.25 / (1 - l.Loss); got[i].Transmissions > most {
				r.line("L3", false, "at %.2f %% %v with window %d and bitmap %d sends a packet %.3f times (at most %.3f)",
					100*l.Loss, l.Kind, l.Window, l.reach(), got[i].Transmissions, most)
			}
		}
	}
	x := find(selective.RACK, 0, 2*BDP, 0, 64)
	r.line("L4", x.Goodput >= 0.9, "with packets late by up to 64 rack has %.3f (at least 0.9)", x.Goodput)
	x = find(selective.GoBackN, 0, 2*BDP, 0, 64)
	r.line("L4", x.Goodput < 0.9, "with packets late by up to 64 go-back-n has %.3f (less than 0.9)", x.Goodput)
	x = find(selective.IRN, 0, 2*BDP, 0, 64)
	r.line("L4", !math.IsNaN(x.Goodput), "with packets late by up to 64 irn completes, and has %.3f (not the 0.9 of rack: as published it sends each packet again that another overtakes, %.2f times)",
		x.Goodput, x.Transmissions)
}
