package rules_test

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// keys=hot:N is parsed and printed, and refused in rules in which it has no meaning.
func TestHotKeys(t *testing.T) {
	r, err := rules.Parse("server=10.0.0.1 action=steer keys=hot:8")
	if err != nil || r.Hot != 8 || !strings.Contains(r.String(), "keys=hot:8") {
		t.Errorf("%+v %v %v", r, r, err)
	}
	for _, text := range []string{"keys=hot:0", "keys=hot:257", "keys=hot:", "keys=hot:x"} {
		if _, err := rules.Parse("server=10.0.0.1 action=steer " + text); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
	for _, text := range []string{"action=move keys=hot:8", "action=steer mode=published keys=hot:8"} {
		r, err := rules.Parse("id=a server=10.0.0.1 " + text)
		if err == nil {
			err = r.Validate()
		}
		if err == nil {
			t.Errorf("%s was taken", text)
		}
	}
	r, err = rules.Parse("id=a server=10.0.0.1 action=steer mode=published keys=1,2")
	if err != nil || r.Validate() != nil || !r.HasKey(2) || r.HasKey(3) {
		t.Errorf("%+v %v", r, err)
	}
}

// registers=N is for the published program of action steer alone.
func TestRegisters(t *testing.T) {
	r, err := rules.Parse("id=a server=10.0.0.1 action=steer mode=published registers=1024")
	if err != nil || r.Validate() != nil || r.NumRegisters() != 1024 || !strings.Contains(r.String(), "registers=1024") {
		t.Errorf("%+v %v", r, err)
	}
	if r, err = rules.Parse("id=a server=10.0.0.1 action=steer mode=published"); err != nil || r.NumRegisters() != 256 {
		t.Errorf("%+v %v", r, err)
	}
	for _, text := range []string{
		"action=steer mode=published registers=0", "action=steer mode=published registers=16385", "action=steer registers=256",
		"action=move mode=published registers=256", "action=steer mode=published registers=x",
	} {
		r, err := rules.Parse("id=a server=10.0.0.1 " + text)
		if err == nil {
			err = r.Validate()
		}
		if err == nil {
			t.Errorf("%s was taken", text)
		}
	}
	r.Registers = -1 // as JSON may contain it
	if r.Validate() == nil {
		t.Error("-1 registers were taken")
	}
}
