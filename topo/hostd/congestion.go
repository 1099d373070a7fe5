package hostd

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// wakeTime is how long a daemon needs to wake up for a deadline, in real time: a paced queue pair
// sends in bursts of what its rate gives in this time.
const wakeTime = 50 * time.Microsecond

// congestionOf returns the congestion control of a host's NIC; nil means none.
func congestionOf(r *rackfile.Rack, h *rackfile.Host) *congestion.Config {
	if h.Congestion == nil {
		return nil
	}
	return &congestion.Config{Params: *h.Congestion, Wake: wakeTime / time.Duration(r.Factor())}
}

// Congestion is the answer to PathCongestion.
type Congestion struct {
	Name string `json:"name"`
	// Params are the parameters; nil means that congestion control is off.
	Params *congestion.Params `json:"params,omitempty"`
	QPs    []CongestionQP     `json:"qps"`
}

// CongestionQP is the congestion control of a queue pair. Rates are in bits a second of the rack's
// clock.
type CongestionQP struct {
	QPN   uint32      `json:"qpn"`
	Owner OwnerStatus `json:"owner"`
	// Peer and PeerQPN are the other end; "" and 0 for datagrams.
	Peer    string `json:"peer,omitempty"`
	PeerQPN uint32 `json:"peerQpn,omitempty"`
	// Rate is R_C, Target is R_T.
	Rate      int64   `json:"rate"`
	Target    int64   `json:"target"`
	Alpha     float64 `json:"alpha"`
	TimeStage uint32  `json:"timeStage"`
	ByteStage uint32  `json:"byteStage"`
	// Active: the rate is below the line rate, or alpha decays.
	Active bool   `json:"active"`
	CNPs   uint64 `json:"cnps"`
	// Sent are the paced packets and Bytes their frames' bytes. Waits is how often the queue pair had to
	// wait for its rate, Late how many of its bursts began late.
	Sent  uint64 `json:"sent"`
	Bytes uint64 `json:"bytes"`
	Waits uint64 `json:"waits"`
	Late  uint64 `json:"late"`
	// Next is the time until the next burst may begin; 0 means that it may begin now.
	Next time.Duration `json:"next"`
}

// CongestionChange is a request to PathCongestion: new values of parameters, in bits a second,
// nanoseconds and bytes.
type CongestionChange map[string]int64

var errCongestionOff = errors.New("congestion control of this NIC is off; the rack file turns it on")

// congestionControl shows and changes the congestion control of a host's NIC.
type congestionControl struct {
	host string
	dev  *device.Device
	time verbs.Runtime // has the NIC's clock
	log  *slog.Logger
}

func (c congestionControl) routes(m *control.Mux) {
	control.Handle(m, "GET "+PathCongestion, func(*http.Request, none) (Congestion, error) { return c.list(), nil })
	control.Handle(m, "POST "+PathCongestion, func(_ *http.Request, in CongestionChange) (out Congestion, err error) {
		c.dev.With(func(e *engine.Engine) {
			cc := e.Config().Congestion
			if cc == nil {
				err = errCongestionOff
				return
			}
			err = cc.Change(func(p *congestion.Params) error {
				for name, v := range in {
					f, err := p.Field(name)
					if err == nil {
						err = f.Set(v)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil {
			return out, control.Errorf(http.StatusConflict, "%v", err)
		}
		c.log.Info("congestion control changed", "parameters", in)
		return c.list(), nil
	})
}

func (c congestionControl) list() Congestion {
	out := Congestion{Name: c.host, QPs: []CongestionQP{}}
	now := c.time.Now()
	var list []engine.CongestionInfo
	c.dev.With(func(e *engine.Engine) {
		if cc := e.Config().Congestion; cc != nil {
			p := cc.Params
			out.Params, list = &p, e.Listing().Congestion(now)
		}
	})
	for i := range list {
		q := &list[i]
		o := CongestionQP{
			QPN: uint32(q.QPN), Owner: ownerOf(q.Owner), PeerQPN: uint32(q.Peer), Rate: q.Rate, Target: q.Target, Alpha: q.Alpha,
			TimeStage: q.TimeStage, ByteStage: q.ByteStage, Active: q.Active, CNPs: q.CNPs, Sent: q.Sent, Bytes: q.Bytes,
			Waits: q.Waits, Late: q.Late, Next: max(q.Next.Sub(now), 0),
		}
		if q.Peer != 0 {
			o.Peer = q.To.Addr().String()
		}
		out.QPs = append(out.QPs, o)
	}
	return out
}
