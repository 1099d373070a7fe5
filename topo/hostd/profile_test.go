package hostd

import (
	"io"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/control"
)

// The daemon of a host records profiles. The tests of package control say how.
func TestProfile(t *testing.T) {
	_, _, ms := up(t)
	if b, err := ms.Profile(t.Context(), control.MinProfile); err != nil || len(b) == 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	if _, err := ms.Profile(t.Context(), control.MinProfile); !isStatus(err, http.StatusConflict) || !strings.Contains(err.Error(), "a profile of ms0") {
		t.Errorf("a second one: %v", err)
	}
}
