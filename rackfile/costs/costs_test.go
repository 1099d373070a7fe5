package costs

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/cost"
)

func TestBuiltins(t *testing.T) {
	for _, name := range Names() {
		m, err := Builtin(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.Name != name {
			t.Errorf("the file of %s calls itself %s", name, m.Name)
		}
	}
	if _, err := Builtin("connectx9"); err == nil || !strings.Contains(err.Error(), "there are connectx3, connectx3-40g, connectx5, connectx5-dpdk") {
		t.Errorf("an unknown name: %v", err)
	}
	var list rackfile.Errors
	if _, err := Parse("x.yaml", []byte("base: connectx9")); !errors.As(err, &list) {
		t.Errorf("an unknown base: %v", err)
	}
}

// The two models differ only in the switch.
func TestDPDKDiffersInItsSwitch(t *testing.T) {
	plain, err := Builtin("connectx5")
	if err != nil {
		t.Fatal(err)
	}
	dpdk, err := Builtin("connectx5-dpdk")
	if err != nil {
		t.Fatal(err)
	}
	if dpdk.Switch == plain.Switch || dpdk.Switch.Rewrite != cost.Rate(2_800_000) {
		t.Errorf("switch %+v", dpdk.Switch)
	}
	same := *dpdk
	same.Name, same.Switch = plain.Name, plain.Switch
	if same != *plain {
		t.Errorf("more than the switch differs: %+v, %+v", same, *plain)
	}
}

// Every number has its source beside it: one of the list at the top, or a mark that it is an
// assumption.
func TestEveryFigureHasASource(t *testing.T) {
	figure := regexp.MustCompile(`^\s+[a-z]+: +[0-9]`)
	source := regexp.MustCompile(`# \[(S|D|R|M|E|F|H|N|A)\]`)
	for _, name := range Names() {
		text, err := Text(name)
		if err != nil {
			t.Fatal(err)
		}
		figures := 0
		for i, line := range strings.Split(string(text), "\n") {
			if !figure.MatchString(line) {
				continue
			}
			figures++
			if !source.MatchString(line) {
				t.Errorf("%s.yaml:%d: no source: %s", name, i+1, line)
			}
		}
		if figures < 2 { // a model with a base has at least what differs
			t.Errorf("%s.yaml: only %d figures were found", name, figures)
		}
	}
}
