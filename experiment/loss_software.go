package experiment

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// SoftwareRecovery is a load of messages over an unreliable connection whose program repeats the packets that are
// lost, as SDR-RDMA does: each packet is a WRITE with immediate data that has its number, the receiver acknowledges
// each, and the sender sends a packet again that is not acknowledged a time RTO after it was sent.
type SoftwareRecovery struct {
	// Packets is how many packets of 1024 bytes a message has, Messages how many are sent, one at a time.
	Packets, Messages int
	// Loss is the probability that a packet of the sender is lost.
	Loss float64
	Seed uint64 // 0 means 1
}

// SoftwareResult is what a SoftwareRecovery has measured: the mean time of a message from its first packet to its last
// acknowledgement, the times of the model (how far packets are apart, the round trip of one, RTO), and how often a
// packet was sent on average.
type SoftwareResult struct {
	Mean            time.Duration
	Gap, Round, RTO time.Duration
	Transmissions   float64
}

// softwareModel returns the mean time of a message by the model of SDR-RDMA, section 4: packet i of n leaves after i
// gaps, and is sent Y times, where each is lost with probability loss; each time but the last costs RTO and a gap. The
// message takes as long as its latest packet, and a round trip. Its random numbers are not those of the simulator.
func softwareModel(n int, loss float64, r *SoftwareResult) time.Duration {
	const messages = 20_000
	g := rand.New(rand.NewPCG(uint64(n), math.Float64bits(loss)))
	sum := 0.0
	for range messages {
		latest := 0.0
		for i := 1; i <= n; i++ {
			again := 0
			for g.Float64() < loss {
				again++
			}
			latest = max(latest, float64(i)*float64(r.Gap)+float64(again)*float64(r.RTO+r.Gap))
		}
		sum += latest + float64(r.Round)
	}
	return time.Duration(sum / messages)
}

// softwareLosses are the losses at which line L7 is measured.
var softwareLosses = []float64{0.0001, 0.001, 0.01, 0.05}

// softwareWithin is the share by which mean times may differ from the model's, and softwareQuick with --quick, which
// sends a fifth of the messages.
const softwareWithin, softwareQuick = 0.05, 0.1

// software adds line L7 to the report: messages over an unreliable connection, repeated in software.
func (b *lossBody) software(ctx context.Context, p Platform, r *Report) error {
	within := softwareWithin
	if b.quick {
		within = softwareQuick
	}
	for _, loss := range softwareLosses {
		l := SoftwareRecovery{Packets: 256, Messages: b.messages, Loss: loss, Seed: b.seed}
		res, err := p.Recovery(ctx, Recovery{Software: l})
		if err != nil {
			return fmt.Errorf("selective repeat in software at a loss of %.2f %%: %w", 100*loss, err)
		}
		got := res.Software
		model := softwareModel(l.Packets, loss, &got)
		differ := float64(got.Mean)/float64(model) - 1
		r.line("L7", math.Abs(differ) <= within, "at %.2f %% a message of %d packets of UC, repeated in software after %v, takes %v, by the model of SDR-RDMA %v: %+.1f %% (within %.0f)",
			100*loss, l.Packets, got.RTO, got.Mean.Round(100*time.Nanosecond), model.Round(100*time.Nanosecond), 100*differ, 100*within)
	}
	return nil
}
