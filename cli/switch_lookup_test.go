package cli

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// A command that changes entries succeeds if the switch has made all of its changes, and says
// otherwise how many were refused, or that the counters of the table have begun again.
func TestAllEntriesAreChanged(t *testing.T) {
	first := handler.EntriesReport{Written: 10, Removed: 2, Refused: 3}
	for _, tc := range []struct {
		last handler.EntriesReport
		want string
	}{
		{handler.EntriesReport{Written: 15, Removed: 2, Refused: 3}, ""},
		{handler.EntriesReport{Written: 10, Removed: 9, Refused: 3}, ""},
		{handler.EntriesReport{Written: 12, Removed: 2, Refused: 6, Why: "no room"}, "3 of 5 entries were refused: no room"},
		{handler.EntriesReport{Written: 14, Removed: 2, Refused: 3}, "removed, and added again"},
		{handler.EntriesReport{Written: 5}, "removed, and added again"},
		{handler.EntriesReport{Refused: 5}, "removed, and added again"},
	} {
		err := allMade(5, &first, &tc.last)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.last, err, tc.want)
		}
	}
}
