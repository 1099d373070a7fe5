package cli

import "testing"

// A run with --steer says what the switch does in words, what ran before, and how to get that back.
func TestSteeringText(t *testing.T) {
	forward := program{name: "forward"}
	steer := program{name: "swordbox", rules: []string{"x"}, ids: []string{"run-steer-ms0"}}
	ruled := program{name: "swordbox", rules: []string{"y"}, ids: []string{"r1"}}
	for _, c := range []struct {
		want, was  program
		what, text string
	}{
		{steer, forward, "both", "for this run the switch steers appends and READs to the newest version of their key (program swordbox with rules run-steer-ms0; " +
			"before: program forward); if this command is killed, `rdmalab switch program forward` restores that"},
		{steer, forward, "write", "for this run the switch steers appends to the newest version of their key (program swordbox with rules run-steer-ms0; " +
			"before: program forward); if this command is killed, `rdmalab switch program forward` restores that"},
		{forward, ruled, "none", "for this run the switch steers nothing (program forward; before: program swordbox with rules r1); if this command is killed, " +
			"`rdmalab switch program swordbox` restores that, without rules that were added by hand"},
	} {
		if got := steeringText(c.want, c.was, c.what); got != c.text {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.text)
		}
	}
}
