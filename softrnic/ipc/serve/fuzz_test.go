package serve

import (
	"encoding/json"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
)

// Any request of an application is parsed or refused.
func FuzzParse(f *testing.F) {
	for _, op := range []proto.Op{proto.OpHello, proto.OpRegMR, proto.OpDial} {
		b, err := json.Marshal(proto.Request{ID: 1, Op: op, Args: json.RawMessage(`{"h":1}`)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req, err := parse(b)
		if err != nil {
			return
		}
		if req.ID == 0 || len(b) > proto.MaxMessage {
			t.Errorf("%+v passed", req)
		}
		var h proto.Connect
		_ = strict(req.Args, &h) // must not panic
	})
}
