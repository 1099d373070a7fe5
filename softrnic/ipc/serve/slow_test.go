package serve

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A program's timeout is in real time, also on a rack in slow motion.
func TestTimeoutsAreInRealTime(t *testing.T) {
	for _, c := range []struct {
		timeout time.Duration
		slow    int
		want    clock.Time
	}{{5 * time.Second, 100, clock.Time(50*time.Millisecond) + 7}, {5 * time.Second, 0, clock.Time(5*time.Second) + 7}, {-1, 100, clock.Never}} {
		if got := after(7, c.timeout, c.slow); got != c.want {
			t.Errorf("a timeout of %v ends at %v by a clock that is slow by %d, want %v", c.timeout, got, c.slow, c.want)
		}
	}
}
