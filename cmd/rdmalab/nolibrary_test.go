package main

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

func TestNoLibraryIsSaid(t *testing.T) {
	var with, without strings.Builder
	warnNoLibrary(&with, []string{rackfile.EnvVerbs + "=/s", uverbs.EnvTree + "=/t"})
	warnNoLibrary(&without, []string{rackfile.EnvVerbs + "=/s"})
	if with.String() != "" {
		t.Errorf("with the library: %q", with.String())
	}
	if strings.Count(without.String(), "\n") != 1 || !strings.Contains(without.String(), "amd64 or arm64") {
		t.Errorf("without the library: %q, want one line that says what to do", without.String())
	}
}
