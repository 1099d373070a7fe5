package cli

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// typed parses the command line after `inject` into a rule.
func typed(t *testing.T, line string) (fault.Rule, []string, error) {
	t.Helper()
	var f ruleFlags
	fs := pflag.NewFlagSet("inject", pflag.ContinueOnError)
	f.define(fs)
	if err := fs.Parse(strings.Fields(line)); err != nil {
		return fault.Rule{}, nil, err
	}
	args := append(fs.Args(), "")
	r, err := f.rule(args[0], args[1])
	if err != nil {
		return r, nil, err
	}
	rack := &rackfile.Rack{Name: "test", Hosts: []rackfile.Host{{Name: "cn0"}, {Name: "cn1"}, {Name: "ms0"}}}
	links, err := injectWhere(rack, r.Kind, &f)
	if err != nil {
		return r, nil, err
	}
	r.Link = links[0]
	if r.Kind == fault.Tear && !f.set("dir") {
		r.Dir = ""
	}
	return r, links, r.Validate()
}

// A rule is printed as a command line that makes the same rule.
func TestInjectSpellings(t *testing.T) {
	for line, want := range map[string]string{
		"loss 10% --link cn0":                                      "loss 10% --link cn0",
		"loss 0.1 --link cn0":                                      "loss 10% --link cn0",
		"duplicate 5% --link cn0":                                  "duplicate 5% --link cn0",
		"reorder 5% --link cn0":                                    "reorder 5% --link cn0",
		"corrupt 1% --link cn0":                                    "corrupt 1% --link cn0",
		"rate 1Gbit --link cn0":                                    "rate 1Gbit --link cn0",
		"blackhole --link cn0":                                     "blackhole --link cn0",
		"tear 10% --host ms0":                                      "tear 10% --host ms0",
		"loss 1% --link cn1 --dir up --for 10s --seed 7":           "loss 1% --link cn1 --dir up --for 10s --seed 7",
		"delay 1ms --jitter 200us --link cn0 --dir down":           "delay 1ms --jitter 200µs --link cn0 --dir down",
		"delay 1ms --probability 50% --link cn0":                   "delay 1ms --probability 50% --link cn0",
		"drop --opcode RC_ATOMIC_ACK --once --link cn0 --dir down": "loss --opcode RC_ATOMIC_ACK --once --link cn0 --dir down",
		"drop --opcode rc_read_response_middle --psn-offset 5 --once --link cn0 --dir down": "loss --opcode RC_READ_RESPONSE_MIDDLE --psn-offset 5 --once --link cn0 --dir down",
		"drop --opcode RC_WRITE_LAST --same-packet --next 2 --link cn0 --dir up":            "loss --opcode RC_WRITE_LAST --same-packet --next 2 --link cn0 --dir up",
		"drop --qpn 0x11 --psn 0x10 --transmission 2 --link cn0":                            "loss --qpn 0x11 --psn 16 --transmission 2 --link cn0",
		"loss 50% --class nak --link cn0":                                                   "loss 50% --class nak --link cn0",
		"drop --opcode RC_ACK,RC_ATOMIC_ACK --psn-offset 0 --link cn0":                      "loss --opcode RC_ACK,RC_ATOMIC_ACK --psn-offset 0 --link cn0",
	} {
		r, _, err := typed(t, line)
		if err != nil || r.String() != want {
			t.Errorf("%s\n is %s, %v\nwant %s", line, r, err, want)
			continue
		}
		if again, _, err := typed(t, r.String()); err != nil || again.String() != want {
			t.Errorf("%s\n is read back as %s, %v", r, again, err)
		}
	}
}

func TestInjectLinks(t *testing.T) {
	for line, want := range map[string]string{
		"loss 1% --link cn0,ms0":            "cn0 ms0",
		"loss 1% --link cn[0-1]":            "cn0 cn1",
		"loss 1% --link all":                "cn0 cn1 ms0",
		"loss 1% --link cn0 --link cn0":     "cn0",
		"tear 1% --link ms0":                "ms0",
		"loss 1% --link ms0 --link cn[1-1]": "ms0 cn1",
	} {
		if _, links, err := typed(t, line); err != nil || strings.Join(links, " ") != want {
			t.Errorf("%s: %v, %v", line, links, err)
		}
	}
}

func TestInjectRefusals(t *testing.T) {
	for line, hint := range map[string]string{
		"loss --link cn0":                                 "10%",
		"loss 0 --link cn0":                               "probability",
		"loss 200% --link cn0":                            "probability",
		"loss 10% --probability 5% --link cn0":            "twice",
		"loss 10%":                                        "--link",
		"loss 10% --link cn9":                             "cn0",
		"loss 10% --link cn0 --dir left":                  "up, down, both",
		"loss 10% --link cn0 --once --next 3":             "--once",
		"loss 10% --link cn0 --next 0":                    "--next",
		"loss 10% --link cn0 --for 0s":                    "--for",
		"loss 10% --link cn0 --transmission 0":            "--transmission",
		"loss 10% --link cn0 --delay 1ms":                 "delay",
		"loss 10% --host cn0":                             "--link",
		"loss 10% --link cn0 --class atmic":               "atomic",
		"drop --link cn0":                                 "blackhole",
		"drop --opcode RC_FOO --link cn0":                 "RC_FOO",
		"drop --qpn 0x1000000 --link cn0":                 "0xffffff",
		"drop --psn 1 --psn-offset 1 --link cn0":          "psn",
		"drop --opcode RC_ACK --class request --link cn0": "never",
		"delay --link cn0":                                "1ms",
		"delay 10 --link cn0":                             "10",
		"delay 1ms --delay 1ms --link cn0":                "twice",
		"delay 1h --link cn0":                             "1m",
		"rate --link cn0":                                 "1Gbit",
		"rate 1Gbps --link cn0":                           "1Gbit",
		"rate 1bit --link cn0":                            "8kbit",
		"blackhole 10% --link cn0":                        "amount",
		"blackhole --once --link cn0":                     "loss",
		"tear 10%":                                        "--host",
		"tear 10% --host ms0 --link ms0":                  "one",
		"tear 10% --host ms0 --dir up":                    "direction",
		"fog 10% --link cn0":                              "loss",
		"loss 10% --link cn0 --id tear-cn0":               "tear-HOST",
		"tear 10% --host cn0 --id mine":                   "tear-HOST",
		"loss 10% --link cn0 --id ..":                     "the first a letter or digit",
	} {
		if r, _, err := typed(t, line); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v, %v; want a hint at %q", line, r, err, hint)
		}
	}
}
