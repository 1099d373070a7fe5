package cli

import (
	"strconv"
	"strings"
	"testing"
)

// On few processors `up` says what a compact rack gains, unless the rack is one or cannot be one.
func TestAdviseCompact(t *testing.T) {
	s, err := fileRack("")
	if err != nil {
		t.Fatal(err)
	}
	if text := adviseCompact(s, 2); !strings.Contains(text, "machine: 2; processes that poll: "+strconv.Itoa(len(s.Hosts)+1)+".") {
		t.Errorf("%q", text)
	}
	if s.Shared() {
		t.Error("the advice has changed the rack")
	}
	if text := adviseCompact(s, 5); text != "" {
		t.Errorf("on five processors: %q", text)
	}
	s.Slow = 100
	if text := adviseCompact(s, 2); text != "" {
		t.Errorf("in slow motion: %q", text)
	}
	s.Slow = 0
	if err := s.Share(); err != nil {
		t.Fatal(err)
	}
	if text := adviseCompact(s, 2); text != "" {
		t.Errorf("of a compact rack: %q", text)
	}
}
