package real

import (
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
