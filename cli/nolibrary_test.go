package cli

import (
	"strings"
	"testing"
)

func TestNoLibraryIsSaid(t *testing.T) {
	var with, without strings.Builder
	warnNoLibrary(&with, true)
	warnNoLibrary(&without, false)
	if with.String() != "" {
		t.Errorf("with the library: %q", with.String())
	}
	if strings.Count(without.String(), "\n") != 1 || !strings.Contains(without.String(), "amd64 or arm64") {
		t.Errorf("without the library: %q, want one line that says what to do", without.String())
	}
}
