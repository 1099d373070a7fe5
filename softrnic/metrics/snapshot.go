package metrics

import "reflect"

// Sample is one counter's name, meaning and value.
type Sample struct {
	Name  string `json:"name"`
	Help  string `json:"-"`
	Value uint64 `json:"value"`
}

// Samples lists the counters of c, a pointer to a struct whose uint64 fields carry name and help
// tags, in the order of its fields. It is for listings, not for a hot path.
func Samples(c any) []Sample {
	v := reflect.ValueOf(c).Elem()
	out := make([]Sample, 0, v.NumField())
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name := f.Tag.Get("name"); name != "" && f.Type.Kind() == reflect.Uint64 {
			out = append(out, Sample{Name: name, Help: f.Tag.Get("help"), Value: v.Field(i).Uint()})
		}
	}
	return out
}
