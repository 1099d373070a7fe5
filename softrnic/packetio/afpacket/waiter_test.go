package afpacket

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/stall"
)

// waiting starts w.Wait in a goroutine and returns its result.
func waiting(w *Waiter, d time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.Wait(d) }()
	return done
}

func finish(t *testing.T, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatalf("%s did not end the Wait", what)
		return nil
	}
}

// blocked waits until w is about to sleep.
func blocked(t *testing.T, w *Waiter) {
	t.Helper()
	for end := time.Now().Add(patience); !w.blocked.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("Wait never blocked")
		}
	}
}

func TestWait(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		a, b := open(t, Config{Ifname: endA, Mode: Switch}), open(t, Config{Ifname: endB, Mode: Switch})
		for _, spin := range []time.Duration{0, 50 * time.Microsecond} {
			w, err := NewWaiter(spin, b)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Wait(0); err != nil {
				t.Errorf("Wait(0): %v", err)
			}
			start := time.Now()
			if err := w.Wait(20 * time.Millisecond); err != nil || time.Since(start) < 20*time.Millisecond {
				t.Errorf("Wait(20ms): %v after %v", err, time.Since(start))
			}
			w.Wake()
			if err := finish(t, "an earlier Wake", waiting(w, -1)); err != nil {
				t.Error(err)
			}
			done := waiting(w, -1)
			blocked(t, w)
			w.Wake()
			if err := finish(t, "Wake", done); err != nil {
				t.Error(err)
			}
			done = waiting(w, -1)
			blocked(t, w)
			var batch, in packetio.Batch
			batch.Add(0, frame(64, 1))
			if _, err := a.Send(&batch); err != nil {
				t.Fatal(err)
			}
			if err := finish(t, "a frame", done); err != nil {
				t.Error(err)
			}
			if n, err := b.Recv(&in); n != 1 || err != nil {
				t.Errorf("Recv after Wait: %d, %v", n, err)
			}
			if n, err := b.Recv(&in); n != 0 || err != nil {
				t.Errorf("second Recv: %d, %v", n, err)
			}
			done = waiting(w, -1)
			blocked(t, w)
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if err := finish(t, "Close of the waiter", done); err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
		w, err := NewWaiter(0, a, b)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		done := waiting(w, -1)
		blocked(t, w)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := finish(t, "Close of a port", done); err != nil {
			t.Error(err)
		}
		if _, err := NewWaiter(0, b); !errors.Is(err, ErrClosed) {
			t.Errorf("waiter on a closed port: %v", err)
		}
	})
}

// carrier waits until ports see their link go up or down: the kernel tells them a little later.
func carrier(t *testing.T, up bool, ports ...*Port) {
	t.Helper()
	for _, p := range ports {
		for end := time.Now().Add(patience); p.LinkUp() != up; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s never reported up=%v", p.Info().Ifname, up)
			}
		}
	}
}

func TestLinkDownIsNoErrorRemovalIs(t *testing.T) {
	for name, noRing := range map[string]bool{"ring": false, "recvmmsg": true} {
		t.Run(name, func(t *testing.T) {
			isolated(t, 4200, func(t *testing.T) {
				a, b := open(t, Config{Ifname: endA, Mode: Switch, NoRing: noRing}), open(t, Config{Ifname: endB, Mode: Switch, NoRing: noRing})
				w, err := NewWaiter(0, b)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				carrier(t, true, a)
				for range 2 { // a's interface is down, b loses its carrier
					setUp(t, endA, false)
					carrier(t, false, a, b)
					for _, p := range []*Port{a, b} {
						var batch packetio.Batch
						batch.Add(0, frame(64, 1))
						if n, err := p.Send(&batch); n != 0 || err != nil {
							t.Errorf("Send while down: %d, %v", n, err)
						}
						if n, err := p.Recv(&batch); n != 0 || err != nil {
							t.Errorf("Recv while down: %d, %v", n, err)
						}
					}
					if err := w.Wait(10 * time.Millisecond); err != nil {
						t.Errorf("Wait while down: %v", err)
					}
					setUp(t, endA, true)
					carrier(t, true, a, b)
					var batch packetio.Batch
					batch.Add(0, frame(64, 2))
					if n, err := a.Send(&batch); n != 1 || err != nil {
						t.Errorf("Send after up: %d, %v", n, err)
					}
					if got := receive(t, b, 1); len(got) != 1 {
						t.Error("nothing arrived after up")
					}
				}
				if s := a.Stats(); s.TxDropped != 2 {
					t.Errorf("%d frames counted as dropped, want 2", s.TxDropped)
				}
				var in packetio.Batch
				if _, err := b.Recv(&in); err != nil {
					t.Fatal(err)
				}
				done := waiting(w, -1)
				blocked(t, w)
				delLink(t, endA)
				if err := finish(t, "removal", done); err != nil {
					t.Error(err)
				}
				var sendErr, recvErr error
				for end := time.Now().Add(patience); recvErr == nil && time.Now().Before(end); {
					if err := w.Wait(time.Millisecond); err != nil {
						t.Fatal(err)
					}
					_, recvErr = b.Recv(&in)
				}
				in.Add(0, frame(64, 1))
				_, sendErr = a.Send(&in)
				if !errors.Is(recvErr, ErrGone) || !errors.Is(sendErr, ErrGone) {
					t.Errorf("after removal: Recv %v, Send %v; want ErrGone", recvErr, sendErr)
				}
			})
		})
	}
}

// A thread that wakes long after a frame has come for it notes a stall; the wait of a frame that has just come
// is none.
func TestLateWake(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		a, b := open(t, Config{Ifname: endA, Mode: Switch}), open(t, Config{Ifname: endB, Mode: Switch})
		w, err := NewWaiter(0, b)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		count := func() uint64 {
			if s := stall.OfProcess.Summary(); s != nil {
				return s.Count
			}
			return 0
		}
		was := count()
		w.checkLate()
		var batch packetio.Batch
		batch.Add(0, frame(64, 1))
		if _, err := a.Send(&batch); err != nil {
			t.Fatal(err)
		}
		if err := w.Wait(-1); err != nil {
			t.Fatal(err)
		}
		came, ok := b.rx.arrived()
		if !ok || time.Since(came) > patience {
			t.Fatalf("the frame came at %v, %t", came, ok)
		}
		for time.Since(came) < stall.Least {
			time.Sleep(time.Millisecond)
		}
		w.checkLate()
		if count() == was {
			t.Error("no stall is noted")
		}
	})
}
