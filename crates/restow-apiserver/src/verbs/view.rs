//! How objects look to who asked for them: in which version, and how much of them.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::http::json;
use crate::http::negotiation::{Accepted, Form};
use crate::http::options::Include;
use crate::http::status::Failure;
use crate::object::stored::Extent;
use crate::object::table::{Columns, metadata_of_one};
use crate::registry::conversion::convert;
use crate::registry::custom_resource::Custom;
use crate::registry::resource::{Nature, Resource};
use crate::verbs::api::Api;
use crate::verbs::selection::Selection;

/// How objects are shown.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// What they are.
    pub resource: Arc<Resource>,
    /// The version.
    pub version: String,
    /// The same with its group.
    pub api_version: String,
    /// The kind of a list of them.
    pub list_kind: String,
    /// How much.
    pub form: Form,
    /// The columns, of a table.
    pub columns: Option<Arc<Columns>>,
    /// How much of objects goes along with their rows.
    pub include: Include,
}

impl View {
    /// Objects of a resource in a version.
    pub(crate) fn new(resource: &Arc<Resource>, version: &str, accepted: Accepted, include: Include) -> Self {
        let columns = (accepted.form == Form::Table).then(|| {
            Arc::new(match &resource.nature {
                Nature::BuiltIn(_) => Columns::built_in(&resource.name.group, &resource.name.resource),
                Nature::Custom(custom) => Columns::custom(custom.columns(version)),
            })
        });
        Self {
            version: version.to_owned(),
            api_version: resource.api_version(version),
            list_kind: resource.list_kind.clone(),
            form: accepted.form,
            columns,
            include,
            resource: Arc::clone(resource),
        }
    }

    /// How much of an object has to be read to select and show it.
    pub(crate) fn extent(&self, selection: &Selection) -> Extent {
        let converted = self.resource.custom().is_some_and(|custom| custom.has_webhook());
        if self.form == Form::Metadata && selection.is_of_metadata() && !converted {
            Extent::Metadata
        } else {
            Extent::Whole
        }
    }

    /// Completes objects as they are stored, before they are converted.
    pub(crate) fn complete(&self, stored: &mut [Value]) {
        if let Some(custom) = self.shaped_by() {
            stored.iter_mut().for_each(|object| custom.complete(object));
        }
    }

    /// Complete objects in the version they are shown in.
    pub(crate) async fn converted(&self, api: &Api, complete: Vec<Value>) -> Result<Vec<Value>, Failure> {
        convert(&*api.converter, &self.resource, &self.api_version, complete).await
    }

    /// Drops what the version they are shown in does not know of converted objects.
    pub(crate) fn cut(&self, converted: &mut [Value]) {
        if let Some(custom) = self.shaped_by() {
            converted.iter_mut().for_each(|object| custom.cut(&self.version, object));
        }
    }

    /// The definition whose schemas apply to what is shown, if any.
    fn shaped_by(&self) -> Option<&Arc<Custom>> {
        self.resource.custom().filter(|_| self.form != Form::Metadata)
    }

    /// One object as it is stored, in the version it is shown in.
    pub(crate) async fn object(&self, api: &Api, stored: Value) -> Result<Value, Failure> {
        let mut objects = vec![stored];
        self.complete(&mut objects);
        let mut objects = self.converted(api, objects).await?;
        self.cut(&mut objects);
        objects.pop().ok_or_else(|| Failure::plain("an object was lost in conversion"))
    }

    /// An object as it stands in a list: what the list says of built-ins, they do not repeat.
    pub(crate) fn item(&self, mut object: Value) -> Value {
        if let (Nature::BuiltIn(_), Form::Whole, Some(fields)) =
            (&self.resource.nature, self.form, object.as_object_mut())
        {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        object
    }

    /// Writes an object as an item of a list.
    pub(crate) fn append_item(&self, bytes: &mut BytesMut, object: Value) {
        match self.form {
            Form::Whole => json::append(bytes, &object),
            Form::Metadata => json::append(bytes, &partial(object)),
            Form::Table => json::append(bytes, &self.row(&object)),
        }
    }

    /// Writes an object by itself, as in a watch.
    pub(crate) fn append_one(&self, bytes: &mut BytesMut, object: Value, columns: bool) {
        match self.form {
            Form::Whole | Form::Metadata => self.append_item(bytes, object),
            Form::Table => {
                let mut table = json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata_of_one(&object),
                    "rows": [self.row(&object)],
                });
                table["columnDefinitions"] = if columns { self.headers() } else { Value::Null };
                json::append(bytes, &table);
            }
        }
    }

    /// The bytes of an object as an answer.
    pub(crate) fn answer(&self, object: Value) -> Bytes {
        let mut bytes = BytesMut::with_capacity(1024);
        self.append_one(&mut bytes, object, true);
        bytes.put_u8(b'\n');
        bytes.freeze()
    }

    /// The headers of a table.
    pub(crate) fn headers(&self) -> Value {
        self.columns.as_ref().map(|columns| columns.definitions()).unwrap_or_default()
    }

    fn row(&self, object: &Value) -> Value {
        let row = |columns: &Arc<Columns>| columns.table_row("v1", object, self.include, restow_clock::now());
        self.columns.as_ref().map(row).unwrap_or_default()
    }
}

/// Just the metadata of an object.
pub(crate) fn partial(mut object: Value) -> Value {
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"].take(),
    })
}
