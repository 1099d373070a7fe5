package main

import (
	"bytes"
	"strings"
	"testing"
)

// trace prints each request with the bytes that others have changed, and the result of the condition.
func TestRednTrace(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"ENABLE", "-> 08 00 00 00", "result: 1\n"}},
		{[]string{"--y", "6"}, []string{"-> 05 00 00 08 00 00 00", "result: 2\n"}},
		{[]string{"--stale"}, []string{"result: 2\n"}},
	} {
		var out bytes.Buffer
		root := rootCmd(rednCmd())
		root.SetOut(&out)
		root.SetArgs(append([]string{"redn", "trace"}, c.args...))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%v: no %q in\n%s", c.args, w, out.String())
			}
		}
	}
}
