package scenario

import "testing"

// A registered scenario is listed, found and run; a second one of its name, and one without a
// function, are refused.
func TestScenariosAreRegistered(t *testing.T) {
	tiny := Special{Name: "tiny", Doc: "one host", Run: func(r Rig) error {
		r.Plan("nothing")
		if _, err := r.Build("hosts: [{name: ms0, role: memory, memory: 64KiB}]"); err != nil {
			return err
		}
		return r.Run()
	}}
	remove := Register(tiny)
	s, err := Find("tiny")
	if err != nil {
		t.Fatal(err)
	}
	if rep := s.Run(3, Options{}); rep.Err != nil || rep.Plan != "nothing" {
		t.Errorf("%+v", rep)
	}
	for what, bad := range map[string]Special{"a second one": tiny, "the name of a hole": {Name: "hole-1", Run: tiny.Run}, "no function": {Name: "small"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was registered", what)
				}
			}()
			Register(bad)
		}()
	}
	if remove(); len(special) != 0 {
		t.Errorf("after its removal there are %d", len(special))
	}
	if _, err := Find("tiny"); err == nil {
		t.Error("it is found after its removal")
	}
}
