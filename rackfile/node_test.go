package rackfile

import (
	"errors"
	"strings"
	"testing"
)

// A key that an unknown one seems to mean, and that is given as well, is not given twice. It counts as given if
// it is not there, so that it is not missing besides.
func TestUnknownKeyBesideTheMeantOne(t *testing.T) {
	for _, text := range []string{
		"topology: x\nhosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\n",
		"hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\nfaults:\n  - {host: cn0, link: cn0, kind: loss, probability: 0.1}\n",
		"faults:\n  - {host: cn0, kind: loss, probability: 0.1}\nhosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory}\n",
	} {
		var list Errors
		if _, err := Parse([]byte(text)); !errors.As(err, &list) || len(list) != 1 || !strings.Contains(list[0].Msg, "unknown key") {
			t.Errorf("%v\nof\n%s", err, text)
		}
	}
}
