package memlink

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
)

// Close ends a Wait on the port, whether the waiter sleeps already, is about to, or only begins to
// wait.
func TestCloseEndsAWait(t *testing.T) {
	for round := range 60 {
		p, err := NewPort(Config{MTU: 1500})
		if err != nil {
			t.Fatal(err)
		}
		w, err := afpacket.NewWaiterBeside([]afpacket.Source{p}, 0)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		wait := func() { ended <- w.Wait(-1) }
		switch round % 3 {
		case 0:
			go wait()
			time.Sleep(time.Duration(round) * 50 * time.Microsecond) // asleep, or on the way: both must do
		case 1:
			go wait()
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if round%3 == 2 {
			go wait()
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d: the Wait goes on after Close", round)
		}
		if fd := p.Bell(); fd != -1 {
			t.Errorf("the bell of a closed port is %d", fd)
		}
		p.mu.Lock()
		if p.bells != -1 || p.own != -1 {
			t.Errorf("round %d: a closed port that nothing waits for has descriptors %d and %d", round, p.bells, p.own)
		}
		p.mu.Unlock()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A closed port ends one Wait: a waiter that goes on with other sources sleeps.
func TestAClosedPortEndsOneWait(t *testing.T) {
	p, err := NewPort(Config{MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if !p.Ready() {
		t.Error("the first look does not notice Close")
	}
	if p.Ready() {
		t.Error("a closed port is ready for ever")
	}
}
