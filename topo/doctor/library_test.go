package doctor

import "testing"

func TestLibrary(t *testing.T) {
	if f := library(true); f.State != OK || f.Fix != "" {
		t.Errorf("with it: %+v", f)
	}
	if f := library(false); f.State != Missing || f.Fix == "" || f.Required {
		t.Errorf("without it: %+v", f)
	}
}
