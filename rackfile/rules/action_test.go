package rules

import (
	"errors"
	"strings"
	"testing"
)

// A rule that arrives as JSON, from a socket or the journal, may have any options. Unknown options
// and bad values are refused.
func TestOptionsAreChecked(t *testing.T) {
	d := Definition{Name: "probe", Keys: []Field{Option("depth", "3", "a number", func(s string) error {
		if s != "3" {
			return errors.New("want 3")
		}
		return nil
	})}}
	for _, c := range []struct {
		options map[string]string
		want    string
	}{
		{nil, ""},
		{map[string]string{"depth": "3"}, ""},
		{map[string]string{"depth": "4"}, "depth: want 3"},
		{map[string]string{"bogus": "3"}, "the key bogus has no meaning with action probe"},
		{map[string]string{"depth": "3", "bogus": "3"}, "bogus"},
	} {
		err := d.validate(&Rule{Options: c.options})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v; want %q", c.options, err, c.want)
		}
	}
}
