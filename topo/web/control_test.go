package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestFaultsBecomeCommands(t *testing.T) {
	for body, want := range map[string]string{
		`{"kind":"loss","amount":"10%","link":"cn0"}`:                                                   "inject loss 10% --link cn0",
		`{"kind":"drop","link":"cn0","dir":"up","opcodes":["RC_WRITE_*","RC_ACK"],"next":1}`:            "inject drop --link cn0 --dir up --opcode RC_WRITE_* --opcode RC_ACK --once",
		`{"kind":"delay","amount":"1ms","link":"cn[0-3]","class":"read_response","for":"10s","next":3}`: "inject delay 1ms --link cn[0-3] --class read_response --for 10s --next 3",
		`{"kind":"tear","amount":"50%","link":"ms0"}`:                                                   "inject tear 50% --host ms0",
		`{"kind":"loss","link":"cn0","next":-1}`:                                                        "inject loss --link cn0 --next -1", // inject says what is wrong with it
		`{"kind":"loss","amount":"--all","link":"cn0"}`:                                                 "",
		`{"kind":"--help","link":"cn0"}`:                                                                "",
		`{"kind":"loss","link":"--rack"}`:                                                               "",
		`{"kind":"loss","link":"cn0","opcodes":["--rack=other"]}`:                                       "",
		`{"kind":"loss","link":"cn0; reboot"}`:                                                          "",
		`{"kind":"loss","link":"cn0\n"}`:                                                                "",
		`{"kind":"loss","link":"` + strings.Repeat("a", maxWord+1) + `"}`:                               "",
		`{"kind":"","link":"cn0"}`:                                                                      "",
		`{"kind":"loss"}`:                                                                               "",
		`{"kind":"loss","link":"cn0","opcodes":[` + strings.Repeat(`"A",`, maxOpcodes) + `"A"]}`:        "",
	} {
		var f FaultRequest
		if err := json.Unmarshal([]byte(body), &f); err != nil {
			t.Fatal(err)
		}
		args, err := f.args()
		if got := strings.Join(args, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", body, got, err, want)
		}
	}
}

// Whatever a request says, its words are arguments of inject's own flags, and no flag of theirs.
func FuzzFaultRequest(f *testing.F) {
	f.Add([]byte(`{"kind":"loss","amount":"10%","link":"cn0","dir":"up","class":"ack","opcodes":["RC_ACK"],"next":2,"for":"1s"}`))
	f.Add([]byte(`{"kind":"-x","link":"--rack"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var r FaultRequest
		if json.Unmarshal(body, &r) != nil {
			return
		}
		args, err := r.args()
		if err != nil {
			return
		}
		own := []string{"--link", "--host", "--dir", "--class", "--for", "--opcode", "--next", "--once"}
		for i := 1; i < len(args); i++ {
			switch a := args[i]; {
			case a == "--once":
			case a == "--next": // its number may be negative, which inject refuses
				i++
			case slices.Contains(own, a):
				i++
				if strings.HasPrefix(args[i], "-") {
					t.Errorf("%q: the flag %s takes the place of a value", args, args[i])
				}
			case strings.HasPrefix(a, "-"):
				t.Errorf("%q: the request has made the flag %s", args, a)
			}
		}
	})
}

func TestCommandsAndTheirErrors(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Program, c.RackFlag = script(t, `[ "$1" = heal ] && { echo "rdmalab: there is no fault $2" >&2; exit 2; }; [ "$1" = hang ] && exit 3; echo "f1: $*"`), []string{"--rack", "r"}
	})
	w := r.ask("POST", "/api/v1/faults", `{"kind":"loss","amount":"1%","link":"cn0"}`, withToken)
	var d Done
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || d.Command != "rdmalab inject loss 1% --link cn0 --rack r" || d.Output != "f1: inject loss 1% --link cn0 --rack r" {
		t.Errorf("%d %s: %v", w.Code, w.Body, err)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"DELETE", "/api/v1/faults/f9", "", 422, `{"error":"there is no fault f9"}`},
		{"DELETE", "/api/v1/faults/--all", "", 400, "use letters"},
		{"DELETE", "/api/v1/faults/a%2fb", "", 400, "use letters"},
		{"POST", "/api/v1/links/cn0%2frxe1", `{"state":"sideways"}`, 400, "up or down"},
		{"POST", "/api/v1/nodes/cn0/actions", `{"action":"hang"}`, 422, "exit status 3"},
		{"POST", "/api/v1/nodes/cn0/actions", `{"action":"down"}`, 400, "there is no action"},
		{"POST", "/api/v1/nodes/-x/actions", `{"action":"crash"}`, 400, "use letters"},
		{"POST", "/api/v1/links/cn0", `{"state":"sideways"}`, 400, "up or down"},
		{"POST", "/api/v1/faults", `{"kind":"loss","link":"cn0","more":1}`, 400, "unknown field"},
		{"POST", "/api/v1/faults", `{"kind":"loss","link":"cn0"} {}`, 400, "something follows"},
		{"POST", "/api/v1/faults", `{`, 400, "the body"},
		{"POST", "/api/v1/faults", "", 415, "application/json"},
	} {
		w := r.ask(c.method, c.path, c.body, withToken)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %s: status %d, %s; want %d, %s", c.method, c.path, c.body, w.Code, w.Body, c.status, c.want)
		}
	}
	form := func(q *http.Request) { withToken(q); q.Header.Set("Content-Type", "text/plain") } // what another site's form can send
	if w := r.ask("POST", "/api/v1/faults", `{"kind":"loss","link":"cn0"}`, form); w.Code != 415 {
		t.Errorf("text/plain: status %d", w.Code)
	}
}

func TestNamesOfRules(t *testing.T) {
	if got := ruleNames("f1: loss 5% --link cn0\nf12: loss 5% --link cn1\nwarning\n"); !slices.Equal(got, []string{"f1", "f12"}) {
		t.Errorf("%q", got)
	}
}
