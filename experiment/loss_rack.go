package experiment

import (
	"context"
	"fmt"
	"math"
)

// rackLosses are the probabilities of a loss that are measured on a rack.
var rackLosses = []float64{0, 0.001, 0.01, 0.05, 0.1}

// lossShare is by which share the goodput on a rack may differ from that in the simulator. Where queue pairs have less than
// lossLittle of the link, few losses decide about a measurement, and it may differ by lossLittleShare.
const lossShare, lossLittle, lossLittleShare = 0.10, 0.1, 0.30

// rackPoints are the loads for a rack. With the most loss there are fewer messages: go-back-N sends few of them in a second.
// With 5 % of loss, 300 messages of the simulator differ by 11 % from seed to seed, which is more than may be.
func (b *lossBody) rackPoints() (list []Recovery) {
	for _, loss := range rackLosses {
		messages := b.messages
		if loss >= 0.1 {
			messages = max(50, b.messages/5)
		}
		list = append(list, Recovery{Loss: loss, Messages: messages, Seed: b.seed})
	}
	return list
}

// onRack runs the experiment loss-recovery on a rack: the recovery, the window, the rate and the delay of its file against
// loss, beside the simulator with the same rack file.
func (b *lossBody) onRack(ctx context.Context, p Platform, r *Report) error {
	r.Columns(
		Column{Key: "recovery", Title: "RECOVERY", Repeats: true}, Column{Key: "loss", Title: "LOSS %", Format: "%.2f"},
		Column{Key: "rack", Title: "RACK", Format: "%.3f"}, Column{Key: "simulator", Title: "SIMULATOR", Format: "%.3f"}, Column{Key: "difference", Title: "DIFFERENCE %", Format: "%+.1f"},
		Column{Key: "transmissions", Title: "TRANSMISSIONS", Format: "%.4f"}, Column{Key: "transmissions_sim", Title: "IN SIMULATOR", Format: "%.4f"},
		Column{Key: "timeouts", Title: "TIMEOUTS"}, Column{Key: "timeouts_sim", Title: "IN SIMULATOR"},
	)
	points := b.rackPoints()
	for i, l := range points {
		r.begin(i+1, len(points), "a loss of %.2f %%", 100*l.Loss)
		got, err := p.Recovery(ctx, l)
		if err != nil {
			r.end("%v", err)
			return fmt.Errorf("at a loss of %.2f %%: %w", 100*l.Loss, err)
		}
		r.end("%.3f", got.Goodput)
		sim := got.Twin
		r.Add(Label(got.Kind.String()), Num(100*l.Loss), Num(got.Goodput), Num(sim.Goodput), Num(100*(got.Goodput/sim.Goodput-1)),
			Num(got.Transmissions), Num(sim.Transmissions), Num(float64(got.Timeouts)), Num(float64(sim.Timeouts)))
		most := pick(sim.Goodput < lossLittle, lossLittleShare, lossShare)
		r.line("L2", math.Abs(got.Goodput/sim.Goodput-1) <= most, "%v at a loss of %.2f %%: the goodput is %.3f, in the simulator %.3f (within %.0f %%)",
			got.Kind, 100*l.Loss, got.Goodput, sim.Goodput, 100*most)
	}
	return nil
}
