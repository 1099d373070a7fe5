package container

import (
	"encoding/json"
	"io"
)

// Media types of the OCI image specification (image-spec 1.1, media-types.md).
const (
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
)

// ociDescriptor points to a blob of an OCI layout.
type ociDescriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func described(mediaType string, blob []byte) ociDescriptor {
	return ociDescriptor{MediaType: mediaType, Digest: "sha256:" + hash(blob), Size: len(blob)}
}

// WriteOCI writes the image as an archive in the layout of the OCI image specification (image-layout.md),
// which skopeo, podman, containerd and registries' tools read. The same program gives the same bytes.
func (i *Image) WriteOCI(w io.Writer) error {
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": ociManifest,
		"config": described(ociConfig, i.config), "layers": []ociDescriptor{described(ociLayer, i.layer)},
	})
	if err != nil {
		return err
	}
	entry := described(ociManifest, manifest)
	entry.Platform = map[string]string{"architecture": i.arch, "os": "linux"}
	entry.Annotations = map[string]string{"org.opencontainers.image.ref.name": ImageName}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": ociIndex, "manifests": []ociDescriptor{entry}})
	if err != nil {
		return err
	}
	blob := func(data []byte) file { return file{"blobs/sha256/" + hash(data), 0o644, data} }
	archive, err := tarOf(
		file{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, file{"index.json", 0o644, index},
		blob(manifest), blob(i.config), blob(i.layer),
	)
	if err == nil {
		_, err = w.Write(archive)
	}
	return err
}
