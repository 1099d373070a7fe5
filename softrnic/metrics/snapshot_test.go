package metrics

import (
	"fmt"
	"testing"
)

// Add adds what Samples lists, and leaves other fields as they are.
func TestAdd(t *testing.T) {
	type stats struct {
		First  uint64 `name:"first" help:"a counter"`
		Second uint64 `name:"second"`
		Hidden uint64
		Text   string `name:"text"`
	}
	sum := stats{1, 2, 3, "kept"}
	for range 2 {
		Add(&sum, stats{10, 1 << 40, 30, "other"})
	}
	if want := (stats{21, 1<<41 + 2, 3, "kept"}); sum != want {
		t.Errorf("%+v, want %+v", sum, want)
	}
	if got, want := fmt.Sprint(Samples(&sum)), "[{first a counter 21} {second  2199023255554}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
