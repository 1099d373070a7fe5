package switchd

import (
	"errors"
	"io"
	"net/http"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/control"
)

// The daemon of the switch records profiles. The tests of package control say how.
func TestProfile(t *testing.T) {
	c, _ := served(t)
	if b, err := c.Profile(t.Context(), control.MinProfile); err != nil || len(b) == 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Fatal(err)
	}
	defer pprof.StopCPUProfile()
	_, err := c.Profile(t.Context(), control.MinProfile)
	var e *control.Error
	if !errors.As(err, &e) || e.Status != http.StatusConflict || !strings.Contains(e.Message, "a profile of switch") {
		t.Errorf("a second one: %v", err)
	}
}
