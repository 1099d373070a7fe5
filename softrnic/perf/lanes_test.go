package perf_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// laneConfigs are the SEND tests that need queue pairs of their own.
func laneConfigs() []perf.Config {
	var out []perf.Config
	for _, conn := range []string{perf.ConnRC, perf.ConnUC, perf.ConnUD} {
		for _, srq := range []bool{false, true} {
			for _, test := range []string{perf.SendBW, perf.SendLat} {
				for _, n := range []int{1, 3} {
					if test == perf.SendLat && n > 1 || conn == perf.ConnRC && !srq && n == 1 {
						continue
					}
					out = append(out, perf.Config{Test: test, Queues: perf.Queues{Conn: conn, SRQ: srq, QPs: n}, Size: 1000, Iters: 500, Verify: true})
				}
			}
		}
	}
	return out
}

func laneName(c *perf.Config) string {
	return fmt.Sprintf("%s-%s-%d-srq=%v", c.Test, c.Conn, c.QPs, c.SRQ)
}

// Every service delivers every message complete and leaves nothing behind on either side.
func TestLanes(t *testing.T) {
	for _, cfg := range laneConfigs() {
		t.Run(laneName(&cfg), func(t *testing.T) {
			r := newRig(t, memservice.Config{})
			var before engine.Objects
			r.client(func(ctx verbs.Context, m rdmacm.Manager) {
				before = r.srv.Engine().Tables.Objects()
				res, err := r.run(ctx, m, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if want := uint64(cfg.Iters * cfg.Size); res.Verified < want || res.Lost != 0 || res.Sent != cfg.Iters {
					t.Errorf("verified %d bytes of %d, lost %d of %d", res.Verified, want, res.Lost, res.Sent)
				}
				if res.BW != nil && (res.BW.Iters != cfg.Iters || res.BW.MsgRate <= 0) {
					t.Errorf("%+v", res.BW)
				}
			})
			if err := r.Settle(time.Second); err != nil {
				t.Fatal(err)
			}
			if after := r.srv.Engine().Tables.Objects(); after != before {
				t.Errorf("server has %+v, before the run %+v", after, before)
			}
			if left := r.cli.Engine().Tables.Objects(); left != (engine.Objects{}) {
				t.Errorf("client has %+v left", left)
			}
		})
	}
}

// Under loss a reliable service delivers all messages. The other services count the missing ones,
// and those that arrive are right.
func TestLanesUnderLoss(t *testing.T) {
	for _, cfg := range laneConfigs() {
		if cfg.Test != perf.SendBW {
			continue
		}
		t.Run(laneName(&cfg), func(t *testing.T) {
			r := newRig(t, memservice.Config{})
			for _, h := range r.Hosts() {
				h.SetFaults([]fault.Rule{{Link: h.Spec.Name, Kind: fault.Loss, Probability: 0.05}})
			}
			r.client(func(ctx verbs.Context, m rdmacm.Manager) {
				res, err := r.run(ctx, m, cfg)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case cfg.Conn == perf.ConnRC && res.Lost != 0:
					t.Errorf("a reliable service lost %d messages", res.Lost)
				case cfg.Conn != perf.ConnRC && (res.Lost < 10 || res.Lost > 100 || res.BW.Iters != cfg.Iters-res.Lost):
					t.Errorf("lost %d of %d at 10%% loss; %d are said to have come", res.Lost, res.Sent, res.BW.Iters)
				}
				var b strings.Builder
				if err := res.WriteText(&b); err != nil || cfg.Conn == perf.ConnUD && !strings.Contains(b.String(), "transport UD") || res.Lost > 0 && !strings.Contains(b.String(), "lost: ") {
					t.Errorf("%v\n%s", err, b.String())
				}
			})
		})
	}
}

// If a datagram is lost, its echo does not come, and the run reports that.
func TestLostEcho(t *testing.T) {
	r := newRig(t, memservice.Config{})
	r.srv.SetFaults([]fault.Rule{{Link: "ms0", Kind: fault.Loss, Probability: 0.2}})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		_, err := r.run(ctx, m, perf.Config{Test: perf.SendLat, Queues: perf.Queues{Conn: perf.ConnUD}, Patience: time.Second})
		if err == nil || !strings.Contains(err.Error(), "no completion within 1s") {
			t.Errorf("error %v", err)
		}
	})
}

func TestLanesRefused(t *testing.T) {
	for _, tc := range []struct {
		c    perf.Config
		want string
	}{
		{perf.Config{Test: perf.SendBW, Queues: perf.Queues{Conn: "xrc"}}, "want rc, uc or ud"},
		{perf.Config{Test: perf.WriteBW, Queues: perf.Queues{Conn: perf.ConnUC}}, "are for send_bw and send_lat"},
		{perf.Config{Test: perf.ReadBW, Queues: perf.Queues{QPs: 2}}, "are for send_bw and send_lat"},
		{perf.Config{Test: perf.SendLat, Queues: perf.Queues{QPs: 2}}, "one message at a time"},
		{perf.Config{Test: perf.SendBW, Queues: perf.Queues{QPs: perf.MaxQPs + 1}}, "queue pairs"},
	} {
		if err := tc.c.Validate(); !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.c, err, tc.want)
		}
	}
	r := newRig(t, memservice.Config{})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		if _, err := r.run(ctx, m, perf.Config{Test: perf.SendBW, Queues: perf.Queues{Conn: perf.ConnUD}, Size: 5000}); err == nil || !strings.Contains(err.Error(), "4096 at most") {
			t.Errorf("a datagram of 5000 bytes: %v", err)
		}
	})
}
