package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/topo/machines"
)

func TestStrictLosses(t *testing.T) {
	near, far := machines.End{Trunk: "leaf0-leaf1", At: "leaf0"}, machines.End{Trunk: "leaf0-leaf1", At: "leaf1"}
	before := losses{near: {Started: 7, Received: 100, Lost: 4, Late: 1, Silences: 2}, far: {Received: 50}}
	for name, c := range map[string]struct {
		after losses
		want  []string // none: no error
	}{
		"nothing":   {losses{near: {Started: 7, Received: 900, Lost: 4, Late: 1, Silences: 2}, far: {Received: 60}}, nil},
		"lost":      {losses{near: {Started: 7, Received: 900, Lost: 6, Late: 2, Silences: 2}, far: {Received: 60}}, []string{"leaf0-leaf1 has lost 3 datagrams on the way to leaf0"}},
		"silent":    {losses{near: {Started: 7, Received: 900, Lost: 4, Late: 1, Silences: 2}, far: {Received: 60, Silences: 1}}, []string{"leaf0-leaf1 was silent for leaf1"}},
		"again":     {losses{near: {Started: 8, Received: 10, Lost: 2}, far: {Received: 60}}, []string{"has lost 2 datagrams on the way to leaf0"}},
		"long ago":  {losses{near: {Started: 8, Received: 1000, Lost: 3}, far: {Received: 60}}, []string{"has lost 3 datagrams on the way to leaf0"}},
		"unharmed":  {losses{near: {Started: 8, Received: 1000}, far: {Received: 60}}, nil},
		"no answer": {losses{near: {Started: 7, Received: 900, Lost: 5, Late: 1, Silences: 2}}, []string{"leaf1 does not say any more what leaf0-leaf1 has lost", "has lost 1 datagram on the way to leaf0"}},
	} {
		err := before.until(c.after)
		if (err != nil) != (c.want != nil) || err != nil && !errors.Is(err, errStrict) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
	}
}
