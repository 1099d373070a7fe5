package real

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

func TestClockFollowsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		if got := c.Now(); got != 0 {
			t.Errorf("new clock shows %v, want 0", got)
		}
		time.Sleep(3 * time.Millisecond)
		if got := c.Now(); got != clock.Time(3*time.Millisecond) {
			t.Errorf("after 3ms: %v", got)
		}
		if got := c.Until(clock.Time(5 * time.Millisecond)); got != 2*time.Millisecond {
			t.Errorf("Until(5ms) = %v, want 2ms", got)
		}
		if got := c.Until(1); got != 0 {
			t.Errorf("Until(past) = %v, want 0", got)
		}
		if got := c.Until(clock.Never); got != -1 {
			t.Errorf("Until(never) = %v, want -1", got)
		}
	})
}

// A slow clock goes slower by its factor, and real times are longer by it.
func TestSlowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewSlow(40)
		time.Sleep(120 * time.Microsecond)
		if got := c.Now(); got != clock.Time(3*time.Microsecond) {
			t.Errorf("after 120us: %v, want 3us", got)
		}
		if got := c.Until(clock.Time(5 * time.Microsecond)); got != 80*time.Microsecond {
			t.Errorf("Until(5us) = %v, want 80us", got)
		}
		if a, b := c.Monotonic(c.Now()), c.Monotonic(0); a-b != 120_000 {
			t.Errorf("the machine's clock advanced by %d ns, want 120000", a-b)
		}
		if got := c.Real(math.MaxInt64 / 39); got != math.MaxInt64 {
			t.Errorf("a time without end became %v", got)
		}
	})
}
